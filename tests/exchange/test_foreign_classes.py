"""Random models of transformers with various symbols, padding and heads, imported and exported."""

import json
import math

import pytest
import torch
from support.conversion import OURS, SYMBOLS, convert, load, refuses
from support.expressed import HAS_PLACE, RATES, WORDS

from fairseq_posenc.checkpoints.reading import load_file
from fairseq_posenc.exchange.huggingface.roformer import ROFORMER
from fairseq_posenc.models.language_model import LanguageModel

pytestmark = pytest.mark.journeys

LEADING = ["<s>", "<pad>", "</s>", "<unk>"]
#: For each kind of model: its symbols, and the special symbols whose names differ from fairseq's.
ENDS = dict.fromkeys(("bos_token", "eos_token"), "<|end|>")
OF_CAUSAL = (["<|end|>", *WORDS, "<unknown>"], {**ENDS, "unk_token": "<unknown>"})
OF_MASKED = (SYMBOLS, {f"{name[1:-1].lower()}_token": name for name in OURS})
OF_BART, OF_MARIAN = ([*LEADING, *WORDS], {}), (["</s>", "<unk>", *WORDS, "<pad>"], {})
OF_T5 = (["<pad>", "</s>", "<unk>", *WORDS], {})
KNOWN = {**OURS, "<|end|>": "</s>", "<unknown>": "<unk>"}

SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
SIZES.update(num_attention_heads=4, max_position_embeddings=64)
#: Dropout rates from here on are those of support.expressed.RATES, under each class's own names.
RATED = {"attention_dropout": 0.17, "hidden_dropout": 0.23}
BERT = {**SIZES, "hidden_dropout_prob": 0.23, "attention_probs_dropout_prob": 0.17}
BERT.update(classifier_dropout=0.19, pad_token_id=0)
NEOX = {**SIZES, **RATED, "use_parallel_residual": False, "rotary_pct": 0.5}
LLAMA = {**SIZES, "num_key_value_heads": 2, "attention_dropout": 0.17}
LLAMA3 = {
    **{"rope_type": "llama3", "original_max_position_embeddings": 16},
    **{"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
}
GPT2 = {**SIZES, "bos_token_id": 0, "eos_token_id": 0, "attn_pdrop": 0.17, "resid_pdrop": 0.23}
MODERN = {**SIZES, "num_hidden_layers": 4, "local_attention": 8, "pad_token_id": 0}
MODERN.update(bos_token_id=3, cls_token_id=3, eos_token_id=4, sep_token_id=4)
MODERN.update(embedding_dropout=0.23, attention_dropout=0.17, mlp_dropout=0.13)
MODERN.update(classifier_dropout=0.19)
BIASES = dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"), True)
FULL, WINDOW = "full_attention", "sliding_attention"
LABELS = {"id2label": {0: "no", 1: "yes", 2: "perhaps"}}
UNTIED = {"tie_word_embeddings": False}
BART = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 1, "max_position_embeddings": 64}
BART.update(dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4))
BART.update(encoder_ffn_dim=24, decoder_ffn_dim=40, pad_token_id=1, eos_token_id=2)
BART.update(dropout=0.23, attention_dropout=0.17, activation_dropout=0.13)
MBART = {**BART, "decoder_start_token_id": 5}
MARIAN = {**BART, "decoder_start_token_id": 42, "pad_token_id": 42, "eos_token_id": 0}
T5 = {"d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4, "n_positions": 64}
T5.update(dropout_rate=0.23)
T5.update(decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)
#: For each class: the format, the usual suffix of the architecture, config.json, and the symbols.
CLASSES = {
    "Llama": ("hf-llama", "ForCausalLM", LLAMA, OF_CAUSAL),
    "GPTNeoX": ("hf-gpt-neox", "ForCausalLM", NEOX, OF_CAUSAL),
    "Bloom": ("hf-bloom", "ForCausalLM", {**SIZES, **RATED}, OF_CAUSAL),
    "GPT2": ("hf-gpt2", "LMHeadModel", GPT2, OF_CAUSAL),
    "Roberta": ("hf-roberta", "ForMaskedLM", BERT, OF_MASKED),
    "ModernBert": ("hf-modernbert", "ForMaskedLM", MODERN, OF_MASKED),
    "RoFormer": ("hf-roformer", "ForMaskedLM", BERT, OF_MASKED),
    "Marian": ("hf-marian", "MTModel", MARIAN, OF_MARIAN),
    "Bart": ("hf-bart", "ForConditionalGeneration", {**BART, "scale_embedding": True}, OF_BART),
    "MBart": ("hf-mbart", "ForConditionalGeneration", MBART, OF_BART),
    "M2M100": ("hf-m2m100", "ForConditionalGeneration", BART, OF_BART),
    "T5": ("hf-t5", "ForConditionalGeneration", T5, OF_T5),
}
_TEXTS, _TOKENS, _LM = "ForSequenceClassification", "ForTokenClassification", "ForCausalLM"
RELU, _POSENC_LM = {"activation_fn": "relu"}, {"_name": "posenc_lm"}
#: A class or architecture, entries of its config.json, and settings expected after the import.
THEIRS = {
    "llama": ("Llama", {}, {"kv_heads": 2}),
    # only the gain of the last norm distinguishes output from input embeddings
    "llama tied": ("Llama", {"tie_word_embeddings": True}, {}),
    "llama biases": (
        *("Llama", {"attention_bias": True, "hidden_act": "relu", "rope_scaling": LLAMA3}),
        {"feed_forward": "glu", "no_bias": False, "rotary_scaling": "llama3"},
    ),
    "neox": ("GPTNeoX", {}, {"rotary_fraction": 0.5}),
    "bloom": ("Bloom", {}, {"position_encoding": "alibi"}),
    "gpt2": ("GPT2", {}, {"position_encoding": "learned"}),
    "roberta": ("Roberta", {}, {"position_encoding": "learned"}),
    "roberta texts": (f"Roberta{_TEXTS}", {**LABELS, "hidden_act": "relu"}, RELU),
    "roberta tokens": (f"Roberta{_TOKENS}", {"num_labels": 5}, {}),
    "modernbert": (
        *("ModernBert", {}),
        {"local_window": "128,8*2", "rotary_base": "160000.0,10000.0*2"},
    ),
    "modernbert biases": (
        *("ModernBert", {**BIASES, "classifier_activation": "relu"}, {**RELU, "no_bias": False}),
    ),
    "modernbert untied": (
        *("ModernBert", {**UNTIED, "decoder_bias": False, "local_attention": 5}),
        {"untie_weights_roberta": True, "local_window": "128,4*2"},
    ),
    "modernbert other layers": (
        "ModernBert",
        {"layer_types": [WINDOW, FULL, FULL, WINDOW], "hidden_activation": "silu"},
        {"local_window": "8,128*2", "feed_forward": "swiglu"},
    ),
    "modernbert mean": (
        *(f"ModernBert{_TEXTS}", {**LABELS, "classifier_pooling": "mean"}, {"pooler": "mean"}),
    ),
    "modernbert first": (
        f"ModernBert{_TEXTS}",
        {"num_labels": 4, "classifier_bias": True, "classifier_activation": "relu"},
        {**RELU, "pooler_activation_fn": "relu"},
    ),
    "modernbert tokens": (f"ModernBert{_TOKENS}", {"num_labels": 5}, {}),
    "roformer": ("RoFormer", {}, {"num_segments": 2}),
    "roformer projected": (
        *("RoFormer", {**UNTIED, "embedding_size": 8, "hidden_act": "gelu_new"}),
        {"encoder_input_dim": 8, "activation_fn": "gelu_accurate"},
    ),
    "roformer lm": (
        *(f"RoFormer{_LM}", {**UNTIED, "is_decoder": True, "rotary_value": True}),
        {**_POSENC_LM, "share_decoder_input_output_embed": False},
    ),
    "roformer tied lm": (
        *(f"RoFormer{_LM}", {"is_decoder": True}),
        {**_POSENC_LM, "share_decoder_input_output_embed": True},
    ),
    "roformer projected lm": (  # language models have no projection
        *(f"RoFormer{_LM}", {"is_decoder": True, "embedding_size": 24}),
        {"_name": "posenc_masked_lm", "causal": True},
    ),
    "roformer sees all": (f"RoFormer{_LM}", {}, {"_name": "posenc_masked_lm", "causal": False}),
    "roformer texts": (
        *(f"RoFormer{_TEXTS}", {**LABELS, "type_vocab_size": 4}),
        {"num_segments": 4, "pooler_activation_fn": "gelu"},
    ),
    "roformer tokens": (f"RoFormer{_TOKENS}", {"id2label": {0: "a b", 1: "c"}}, {}),
    "marian": ("Marian", {}, {}),
    "bart": ("Bart", {}, {"no_scale_embedding": False}),
    "mbart": ("MBart", {}, {}),
    "m2m100": ("M2M100", {}, RELU),
    "t5": (
        *("T5", {"feed_forward_proj": "gated-gelu"}),
        {"feed_forward": "glu", "activation_fn": "gelu_accurate"},
    ),
    "t5 untied": ("T5", UNTIED, {}),
}
THEIRS = {
    name: (target, part + end * (part == known), {**usual, **config}, symbols, settings)
    for name, (part, config, settings) in THEIRS.items()
    for known, (target, end, usual, symbols) in CLASSES.items()
    if part == known or part.startswith(f"{known}For")
}


@torch.no_grad()
def their_model(transformers, folder, row):
    """A random model of transformers; no gain is 1, and embeddings have more rows than symbols."""
    _, architecture, config, (symbols, roles), _ = row
    if not hasattr(transformers, architecture):
        pytest.skip(f"this version of transformers has no {architecture}")
    known = set(getattr(transformers, architecture).config_class().to_dict())
    if "layer_types" in config and "layer_types" not in known:
        pytest.skip("this version of transformers reads no layer_types")
    family = getattr(transformers, architecture)
    vocab_size = 8 * math.ceil(len(symbols) / 8)
    settings = family.config_class(vocab_size=vocab_size, **config)
    model = family(settings).eval()
    if architecture.startswith("T5") and not config.get("tie_word_embeddings", True):
        model.lm_head.weight = torch.nn.Parameter(torch.randn(vocab_size, 16) / 4)
    for parameter in model.parameters():
        if parameter.requires_grad:  # sinusoids are constant
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    content = {"model": {"vocab": {symbol: number for number, symbol in enumerate(symbols)}}}
    (folder / "tokenizer.json").write_text(json.dumps({**content, "added_tokens": []}))
    (folder / "tokenizer_config.json").write_text(json.dumps(roles))
    return model


def both_logits(theirs, ours, order, symbols, config, length):
    """Both models' logits of real tokens, or of texts, with symbols in transformers' order."""
    known = len(symbols)
    if theirs.config.is_encoder_decoder:
        ids = torch.randint(4, 40, (2, length))
        inputs, target = ids.clone(), order[ids]
        inputs[:, 0], target[:, 0] = theirs.config.decoder_start_token_id, 2
        want = theirs(input_ids=ids, decoder_input_ids=inputs).logits[..., :known]
        return want, ours(order[ids], torch.tensor([length] * 2), target)[0][..., order]
    if symbols is not SYMBOLS or isinstance(ours, LanguageModel):
        ids = torch.randint(5 if symbols is SYMBOLS else 0, known, (2, length))
        return theirs(input_ids=ids).logits[..., :known], ours(order[ids])[0][..., order]
    ids = torch.randint(5, known, (3, length), generator=torch.Generator().manual_seed(2))
    ids[:2, 0] = ids[2, length // 3] = 3
    ids[1, length // 2 :] = ids[2, : length // 3] = 0  # row 1 is padded right, row 2 left
    real, labels = ids.ne(0), None
    given = {"attention_mask": real.long()}
    if hasattr(theirs.config, "type_vocab_size") and theirs.config.type_vocab_size > 1:
        given["token_type_ids"] = labels = ids.gt(6).long()
    heads = [*getattr(ours, "classification_heads", ()), *getattr(ours, "token_heads", ())]
    head = {"classification_head_name": heads[0]} if heads else {}
    want = theirs(input_ids=ids, **given).logits
    have, _ = ours(order[ids], segment_labels=labels, **head)
    want, have = (want, have) if heads else (want[..., :known], have[..., order])
    if want.dim() == 2:  # a head reads the first token, which is padding in row 2
        real = torch.tensor([True, True, config.get("classifier_pooling") == "mean"])
    return want[real], have[real]


@pytest.mark.parametrize("name", THEIRS)
@torch.no_grad()
def test_their_models_compute_the_same_here_and_return(name, transformers, tmp_path, capsys):
    target, architecture, config, (symbols, _), settings = row = THEIRS[name]
    theirs = their_model(transformers, tmp_path / "theirs", row)
    convert("import", target, tmp_path / "theirs", tmp_path / "ours", "--verify")
    printed = capsys.readouterr().out
    assert f"largest difference from {architecture}" in printed
    assert f"left out {-len(symbols) % 8} rows" in printed
    zeros = "zero vectors for 2 symbols that only fairseq has" in printed
    assert zeros == (symbols is OF_CAUSAL[0])
    saved = load_file(tmp_path / "ours" / "checkpoint.pt")
    settings = {**settings, **{rate: RATES[rate] for rate in HAS_PLACE[target]}}
    assert {key: saved["cfg"]["model"][key] for key in settings} == settings
    assert f"--arch {saved['cfg']['model']['_name']}" in printed
    labels = tmp_path / "ours" / "label" / "dict.txt"  # written if labels have names
    assert labels.exists() == (config.get("id2label") is LABELS["id2label"])
    assert not labels.exists() or labels.read_text() == "no 1\nyes 1\nperhaps 1\n"
    ours, dictionary = load(tmp_path / "ours")
    order = torch.tensor([dictionary.index(KNOWN.get(symbol, symbol)) for symbol in symbols])
    for length in (4, 48):  # shorter and longer than a window
        want, have = both_logits(theirs, ours, order, symbols, config, length)
        torch.testing.assert_close(have, want, atol=3e-5, rtol=1e-4)
    other_start = False
    if theirs.config.is_encoder_decoder:
        other_start = symbols[theirs.config.decoder_start_token_id] != "</s>"
    assert ("begin with a token other than </s>" in printed) == other_start
    if other_start and target != "hf-marian":
        return  # our decoder has its own embedding here, which the class cannot hold
    convert("export", target, tmp_path / "ours" / "checkpoint.pt", tmp_path / "back")
    entries = json.loads((tmp_path / "back" / "config.json").read_text())
    names = {int(number): label for number, label in entries.get("id2label", {}).items()}
    assert not labels.exists() or names == theirs.config.id2label
    convert("import", target, tmp_path / "back", tmp_path / "again")
    again = load_file(tmp_path / "again" / "checkpoint.pt")
    assert again["cfg"]["model"] == saved["cfg"]["model"]
    assert all(torch.equal(value, again["model"][key]) for key, value in saved["model"].items())


@pytest.mark.parametrize("dtype", ["float16", None])
def test_rounded_and_missing_tables_of_sines(transformers, tmp_path, monkeypatch, capsys, dtype):
    """Both imports are correct; --verify detects a table with a different base."""
    source, row = tmp_path / "source", THEIRS["roformer"]
    model = their_model(transformers, source, row)
    if dtype is None:
        file = source / "model.safetensors"
        safetensors = pytest.importorskip("safetensors.torch")
        kept = {n: x for n, x in safetensors.load_file(file).items() if "embed_positions" not in n}
        safetensors.save_file(kept, file, metadata={"format": "pt"})
    else:
        model.to(getattr(torch, dtype)).save_pretrained(source)
    convert("import", "hf-roformer", source, tmp_path / "out", "--verify")
    said = "that the file lacks" if dtype is None else "computed in float32 instead of read"
    assert said in capsys.readouterr().out
    monkeypatch.setitem(ROFORMER.always, "rotary_base", 1000.0)
    words = ["largest difference", "0.0001", "nothing was written"]
    refuses(words, "import", "hf-roformer", source, tmp_path / "wrong", "--verify")


def test_a_transformers_that_hides_no_later_tokens_is_named(transformers, tmp_path, monkeypatch):
    """RoFormer is patched to attend to later tokens, as it does in transformers 5.9 to 5.17."""
    module = pytest.importorskip("transformers.models.roformer.modeling_roformer")
    if not hasattr(module, "create_causal_mask"):
        pytest.skip("this transformers makes the mask differently")

    def both_ways(*args, past_key_values=None, **kwargs):
        return module.create_bidirectional_mask(*args, **kwargs)

    monkeypatch.setattr(module, "create_causal_mask", both_ways)
    row = list(THEIRS["roformer tied lm"])
    row[2] = {**row[2], "max_position_embeddings": 40}
    their_model(transformers, tmp_path / "source", row)
    words = ["attends to later tokens", "transformers 5.18"]
    refuses(words, "import", "hf-roformer", tmp_path / "source", tmp_path / "out", "--verify")
