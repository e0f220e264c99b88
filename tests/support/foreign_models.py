"""A small foreign model for every format that can be imported, and one of ours to export."""

from functools import partial

import torch
from support import translations, tupe_checkpoints
from support.conversion import (
    CONFIG,
    SYMBOLS,
    convert,
    imported_logits,
    linear,
    norm,
    roformer_weights,
    save_folder,
    write_folder,
)

from fairseq_posenc.checkpoints.reading import write_checkpoint
from fairseq_posenc.exchange import FORMATS, transfer
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.formats import format_for
from fairseq_posenc.exchange.huggingface import table as names
from fairseq_posenc.models.kinds import MASKED

GAU_CONFIG = {
    "model_type": "gau_alpha",
    "architectures": ["GAUAlphaForMaskedLM"],
    "hidden_size": 16,
    "intermediate_size": 32,
    "attention_key_size": 8,
    "num_hidden_layers": 2,
    "hidden_act": "swish",
    "hidden_dropout_prob": 0.2,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 40,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "normalization": "softmax_plus",
    "attention_scale": True,
    "use_bias": False,
    "pad_token_id": 0,
}


def gau_weights(width=32, size=8):
    state = {
        "gau_alpha.embeddings.word_embeddings.weight": torch.randn(len(SYMBOLS), 16),
        "gau_alpha.embeddings.token_type_embeddings.weight": torch.randn(2, 16),
    }
    for layer in ("gau_alpha.encoder.layer.0.gau.", "gau_alpha.encoder.layer.1.gau."):
        state[layer + "i_dense.weight"] = torch.randn(2 * width + size, 16) / 3
        state[layer + "o_dense.weight"] = torch.randn(16, width) / 3
        for side in "qk":
            state[f"{layer}{side}_scaleoffset.weight"] = 1 + torch.randn(size)
    return state


def write_gau(folder, state=None, **config):
    state = gau_weights() if state is None else state
    return save_folder(folder, {**GAU_CONFIG, **config}, state, SYMBOLS)


def v2_weights():
    """The weights of the first version without biases, norms and the inside of its head."""
    return {
        name: value
        for name, value in roformer_weights().items()
        if name.endswith("weight") and "LayerNorm" not in name and "transform" not in name
    }


def write_v2(folder, state=None, **config):
    state = v2_weights() if state is None else state
    second = {"norm_type": "rms_norm", "use_bias": False, "hidden_act": "relu"}
    return write_folder(folder, state, **{**second, **config})


def write_tupe(folder):
    return tupe_checkpoints.write(folder, tupe_checkpoints.released())


def assert_stored_logits(name, expected, source, symbols, out):
    """Compare an import, and the formulas of its layers, with stored logits at all real tokens.

    Args: name of the format; expected, the reference; source, the folder with its model; symbols of
    its vocabulary; out, the folder that is written.
    """
    convert("import", name, source, out, "--verify")
    read = format_for("import", name).read(str(source), None)
    order = read.vocabulary.order
    ours = torch.empty_like(order)
    ours[order] = torch.arange(len(order))
    for batch, inputs in expected["inputs"].items():
        want, real = expected["outputs"][f"logits_{batch}"], inputs["attention_mask"].bool()
        have = imported_logits(out, symbols, inputs)
        torch.testing.assert_close(have, want[real], atol=1e-4, rtol=0)
        formulas = read.foreign.logits(ours[inputs["input_ids"]], inputs["token_type_ids"])
        formulas = formulas[..., ours][real].float()
        torch.testing.assert_close(formulas, want[real], atol=2e-5, rtol=0)


#: The classes of transformers for language models.
CAUSAL_CLASSES = ("hf-llama", "hf-gpt-neox", "hf-bloom", "hf-gpt2")
CAUSAL_SIZES = {
    "decoder_layers": 2,
    "decoder_embed_dim": 16,
    "decoder_attention_heads": 2,
    "decoder_ffn_embed_dim": 64,
    "max_target_positions": 40,
}


def table_of(name):
    """The table of a registered class of transformers."""
    return FORMATS[name].importer.source


def random_layers(theirs, layers, channels, width, rms=False):
    """Weights and biases of layers, none of which is a zero or a one that could be forgotten."""
    out, into = {names.FC1: width, names.GATE: width}, {names.FC2: width}
    state = {}
    for layer in range(layers):
        for module in theirs.joints:
            of_norm = module.ours[0] in (names.NORM_1, names.NORM_2)
            for part in ("weight",) if rms else ("weight", "bias"):
                rows = [(out.get(name, channels),) for name in module.ours]
                if part == "weight" and not of_norm:
                    rows = [(*shape, into.get(n, channels)) for shape, n in zip(rows, module.ours)]
                parts = [torch.randn(shape) / 4 + of_norm for shape in rows]
                if of_norm and rms:  # powers of two, so that no product is rounded
                    parts = [2.0 ** torch.randint(-1, 2, shape) for shape in rows]
                name = f"{theirs.layer.format(layer)}{module.theirs}.{part}"
                state[name] = module.layout.join(parts, 2).clone()
    return state


def write_causal(name, folder):
    """A language model of a class of transformers, with gains that are not one."""
    target, channels = table_of(name), 16
    (theirs,), rms = target.stacks, "norm" in target.always
    state = random_layers(theirs, 2, channels, 64, rms)
    for module in theirs.outside:
        parts = ("weight",) if rms else ("weight", "bias")
        gains = {f"{module.theirs}.{p}": 2.0 ** torch.randint(-1, 2, (channels,)) for p in parts}
        state.update(gains)
    state[theirs.embedding] = torch.randn(len(SYMBOLS), channels)
    if theirs.table:
        state[theirs.table.theirs] = torch.randn(40, channels)
    if not target.tied(Config("config.json", {})):
        state[target.output] = torch.randn(len(SYMBOLS), channels)
    config = {
        entry.theirs: CAUSAL_SIZES[entry.ours[0]]
        for entry in reversed(target.entries)  # the first of several counts
        if entry.ours and entry.ours[0] in CAUSAL_SIZES
    }
    config.update(model_type=target.model_type, use_parallel_residual=False)
    return save_folder(folder, config, state, SYMBOLS)


#: fairseq's names of the special ones of SYMBOLS
OURS = {"[CLS]": "<s>", "[PAD]": "<pad>", "[SEP]": "</s>", "[UNK]": "<unk>", "[MASK]": "<mask>"}


def write_roberta(folder, state=None, **config):
    """A masked RoBERTa, whose positions begin behind [PAD], number 0."""
    (theirs,) = table_of("hf-roberta").stacks
    weights = {
        **random_layers(theirs, 2, 16, 24),
        theirs.embedding: torch.randn(len(SYMBOLS), 16),
        theirs.table.theirs: torch.randn(41, 16),
        "roberta.embeddings.token_type_embeddings.weight": torch.randn(2, 16),
        **norm("roberta.embeddings.LayerNorm", 16),
        **linear("lm_head.dense", 16, 16),
        **norm("lm_head.layer_norm", 16),
        "lm_head.bias": torch.randn(len(SYMBOLS)),
    }
    entries = {
        **CONFIG,
        "model_type": "roberta",
        "architectures": ["RobertaForMaskedLM"],
        "max_position_embeddings": 41,
        "pad_token_id": 0,
    }
    # without a tokenizer_config.json, the names of special symbols are those of RoBERTa
    symbols = [OURS.get(symbol, symbol) for symbol in SYMBOLS]
    return save_folder(folder, {**entries, **config}, weights if state is None else state, symbols)


def write_modernbert(folder, state=None, **config):
    """A masked ModernBERT with biases everywhere; its first layer attends to all tokens."""
    (theirs,) = table_of("hf-modernbert").stacks
    weights = {
        **random_layers(theirs, 2, 16, 24),
        theirs.embedding: torch.randn(len(SYMBOLS), 16),
        **norm("model.embeddings.norm", 16),
        **norm("model.final_norm", 16),
        **linear("head.dense", 16, 16),
        **norm("head.norm", 16),
        "decoder.bias": torch.randn(len(SYMBOLS)),
    }
    for part in ("weight", "bias"):  # the embeddings' norm is there already
        del weights[f"model.layers.0.attn_norm.{part}"]
    entries = {
        **{key: value for key, value in CONFIG.items() if key != "layer_norm_eps"},
        "model_type": "modernbert",
        "architectures": ["ModernBertForMaskedLM"],
        "local_attention": 8,
        **dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"), True),
    }
    return save_folder(folder, {**entries, **config}, weights if state is None else state, SYMBOLS)


#: Writes a random model of each format to a folder; returns what is given to ``import``.
SOURCES = {
    "hf-roformer": write_folder,
    "roformer-v2": write_v2,
    "gau-alpha": write_gau,
    "tupe": write_tupe,
    "hf-roberta": write_roberta,
    "hf-modernbert": write_modernbert,
    **{name: partial(write_causal, name) for name in CAUSAL_CLASSES},
    **translations.SOURCES,
}


SHAPE = {
    **{"encoder_layers": 2, "encoder_embed_dim": 16, "encoder_ffn_embed_dim": 24},
    **{"encoder_attention_heads": 2, "max_positions": 40, "position_encoding": "rotary"},
}


#: Settings of a masked language model like ModernBERT, and of a language model like RoFormer.
MODERN = {
    **{"encoder_normalize_before": True, "skip_first_norm": True, "feed_forward": "geglu"},
    **{"attention": "local", "local_window": "200,4"},
}
ROFORMER_LM = {
    **{"decoder_layers": 2, "decoder_embed_dim": 16, "decoder_ffn_embed_dim": 24},
    **{"decoder_attention_heads": 2, "max_target_positions": 40, "tokens_per_sample": 40},
    **{"position_encoding": "rotary", "lm_head": "roberta", "no_scale_embedding": True},
    **{"layernorm_embedding": True, "share_decoder_input_output_embed": True},
    **{"activation_fn": "gelu", "decoder_input_dim": 16, "decoder_output_dim": 16},
}


def trained(folder, *heads, kind=MASKED, words=("a", "b"), **settings):
    """A random checkpoint of ours with its dictionary; a masked language model has SHAPE."""
    settings = {**SHAPE, **settings} if kind is MASKED else settings
    folder.mkdir()
    for name in ("dict.txt", *(f"dict.{language}.txt" for language in kind.languages)):
        (folder / name).write_text("".join(f"{word} 1\n" for word in words), "utf-8")
    checkpoint = transfer.new_checkpoint(settings, str(folder), kind)
    model = transfer.build(checkpoint, str(folder / "dict.txt"), kind)
    for name in heads:
        model.register_classification_head(name, 3)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    checkpoint["model"] = model.state_dict()
    write_checkpoint(checkpoint, folder / "checkpoint.pt")
    return folder / "checkpoint.pt"
