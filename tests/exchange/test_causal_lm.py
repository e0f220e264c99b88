"""Language models of random weights as native classes of transformers, and refusals by name."""

import json

import pytest
import torch
from support.causal_checkpoints import EXPRESSED, WORDS, checkpoint_of
from support.conversion import convert
from support.foreign_models import table_of
from support.vocabularies import learn_pieces

from fairseq_posenc.exchange import native
from fairseq_posenc.models.kinds import CAUSAL, PAD
from fairseq_posenc.serving.preparation import Preparation, Text


@torch.no_grad()
def continued(model, tokens, number):
    """Greedy continuations of our model, computed anew for every token, without padding."""
    for _ in range(number):
        logits = model(tokens)[0][:, -1]
        logits[:, PAD] = float("-inf")
        tokens = torch.cat((tokens, logits.argmax(-1, keepdim=True)), dim=1)
    return tokens


@pytest.mark.parametrize("name", ["grouped", "yarn", "share", "bloom", "gpt2"])
def test_texts_are_tokenised_and_continued_alike(name, transformers, tmp_path):
    """Also in a padded batch, and beyond the length in training."""
    target, settings = EXPRESSED[name]
    path, theirs = checkpoint_of(tmp_path / "ours", settings), tmp_path / "theirs"
    convert("export", target, path, theirs)
    ours = native.load(str(path), str(tmp_path / "ours" / "dict.txt"), CAUSAL)
    model = transformers.AutoModelForCausalLM.from_pretrained(theirs).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(theirs, padding_side="left")
    texts = ["w1 w2 w39 elsewhere", "w7", " ".join(WORDS)]
    dictionary = native._task(str(tmp_path / "ours" / "dict.txt"), CAUSAL).source_dictionary
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    batch.pop("token_type_ids", None)
    known = {"eos_token_id": -1, "pad_token_id": PAD, "suppress_tokens": [PAD]}
    together = model.generate(**batch, max_new_tokens=12, do_sample=False, **known)
    for text, row in zip(texts, together):
        numbers = [dictionary.index(word) for word in text.split()]
        want = continued(ours, torch.tensor([[dictionary.eos(), *numbers]]), 12)[0]
        assert row[len(row) - len(want) :].tolist() == want.tolist()


def test_raw_text_is_split_and_computed_as_in_fairseq(transformers, tmp_path):
    """Symbols of the subwords that dict.txt lacks are <unk>, and never written."""
    texts = ["a cab had a bad dab", "bad cad", "a hag bags a cab", "dada"]
    file = str(learn_pieces(tmp_path / "m", texts * 9, vocab_size=14))
    preparation = Preparation(Text(subwords="sentencepiece", subword_file=file))
    lines = [preparation.source(text) for text in texts]
    lacking = lines[2][-1]
    words = sorted({symbol for line in lines for symbol in line} - {lacking})
    target, settings = EXPRESSED["grouped"]
    path, theirs = checkpoint_of(tmp_path / "ours", settings, words), tmp_path / "theirs"
    given = ["--subwords", "sentencepiece", "--subword-file", file, "--verify"]
    convert("export", target, path, theirs, *given)
    model = transformers.AutoModelForCausalLM.from_pretrained(theirs).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(theirs)
    ours = native.load(str(path), str(path.parent / "dict.txt"), CAUSAL)
    number = {
        symbol: index for index, symbol in enumerate(native.read_native(str(path), None).symbols)
    }
    for text, line in zip(texts, lines):
        tokens = torch.tensor([[2, *(number.get(symbol, 3) for symbol in line)]])
        read = tokenizer(text, return_tensors="pt")["input_ids"]
        assert read.where(read < len(number), torch.tensor(3)).tolist() == tokens.tolist()
        have = model(read).logits[..., : len(number)]
        torch.testing.assert_close(have, ours(tokens)[0], atol=1e-5, rtol=1e-5)
    written = model.generate(read, max_new_tokens=20, do_sample=False, eos_token_id=-1)
    assert written.size(1) == read.size(1) + 20 and written.max() < len(number)
    convert("import", target, theirs, tmp_path / "back", "--verify")  # without these symbols
    assert (tmp_path / "back" / "dict.txt").read_text() == (path.parent / "dict.txt").read_text()


@pytest.mark.parametrize("name", EXPRESSED)
def test_every_row_computes_the_same_and_returns(name, transformers, tmp_path, capsys):
    target, settings = EXPRESSED[name]
    path = checkpoint_of(tmp_path / "ours", settings)
    convert("export", target, path, tmp_path / "theirs", "--verify")
    assert f"largest difference from {table_of(target).name}" in capsys.readouterr().out
    convert("import", target, tmp_path / "theirs", tmp_path / "back", "--verify")
    dictionary = tmp_path / "back" / "dict.txt"
    assert dictionary.read_text() == (tmp_path / "ours" / "dict.txt").read_text()
    before = native.load(str(path), str(dictionary), CAUSAL)
    after = native.load(str(tmp_path / "back" / "checkpoint.pt"), str(dictionary), CAUSAL)
    tokens = torch.randint(2, 44, (2, 60))
    with torch.no_grad():
        torch.testing.assert_close(after(tokens)[0], before(tokens)[0], atol=2e-5, rtol=1e-5)


TINY_LLAMA = {
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
LLAMA3 = {
    **{"rope_type": "llama3", "original_max_position_embeddings": 16},
    **{"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
}
THEIRS = {
    "llama": ("hf-llama", "Llama", TINY_LLAMA),
    "tied": ("hf-llama", "Llama", {**TINY_LLAMA, "tie_word_embeddings": True}),
    "biases": ("hf-llama", "Llama", {**TINY_LLAMA, "attention_bias": True, "hidden_act": "relu"}),
    "scaled": ("hf-llama", "Llama", {**TINY_LLAMA, "rope_scaling": LLAMA3}),
    "neox": (
        "hf-gpt-neox",
        "GPTNeoX",
        {
            **{key: value for key, value in TINY_LLAMA.items() if "key_value" not in key},
            "use_parallel_residual": False,
        },
    ),
    "bloom": ("hf-bloom", "Bloom", {"hidden_size": 32, "n_layer": 2, "n_head": 4}),
    "gpt2": (
        "hf-gpt2",
        "GPT2",
        {
            **{"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
            **{"bos_token_id": 0, "eos_token_id": 0},
        },
    ),
}


@torch.no_grad()
def their_model(transformers, folder, name):
    """A random model of transformers with its own gains, and more rows than symbols."""
    _, family, config = THEIRS[name]
    config = getattr(transformers, f"{family}Config")(vocab_size=48, **config)
    architecture = {"GPT2": "GPT2LMHeadModel"}.get(family, f"{family}ForCausalLM")
    model = getattr(transformers, architecture)(config).eval()
    for parameter in model.parameters():
        parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    symbols = ["<|end|>", *WORDS, "<unknown>"]
    content = {
        "model": {"vocab": {symbol: number for number, symbol in enumerate(symbols)}},
        "added_tokens": [],
    }
    (folder / "tokenizer.json").write_text(json.dumps(content))
    roles = dict.fromkeys(("bos_token", "eos_token"), "<|end|>")
    (folder / "tokenizer_config.json").write_text(json.dumps({**roles, "unk_token": "<unknown>"}))
    return model, symbols


@pytest.mark.parametrize("name", THEIRS)
@torch.no_grad()
def test_their_models_compute_the_same_here(name, transformers, tmp_path, capsys):
    theirs, symbols = their_model(transformers, tmp_path / "theirs", name)
    convert("import", THEIRS[name][0], tmp_path / "theirs", tmp_path / "ours", "--verify")
    printed = capsys.readouterr().out
    assert "--arch posenc_lm" in printed and "left out 6 rows" in printed
    assert "2 symbols of fairseq's that it lacks start as zeros" in printed
    dictionary = str(tmp_path / "ours" / "dict.txt")
    ours = native.load(str(tmp_path / "ours" / "checkpoint.pt"), dictionary, CAUSAL)
    numbers = native._task(dictionary, CAUSAL).source_dictionary
    known = {"<|end|>": "</s>", "<unknown>": "<unk>"}
    order = torch.tensor([numbers.index(known.get(symbol, symbol)) for symbol in symbols])
    tokens = torch.randint(0, len(symbols), (2, 50))
    want = theirs(input_ids=tokens).logits[..., : len(symbols)]
    got = ours(order[tokens])[0][..., order]
    torch.testing.assert_close(got, want, atol=2e-5, rtol=1e-4)
