"""Folders of transformers that contradict themselves: each is refused by name, or read one way."""

import json
from pathlib import Path

import pytest
import torch
from support.causal_checkpoints import EXPRESSED, WORDS, checkpoint_of
from support.conversion import SYMBOLS, convert, refuses
from support.foreign_models import SOURCES, table_of, trained

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.reading import load_file
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.huggingface.entries import settings_of
from fairseq_posenc.exchange.huggingface.rope import rope_settings

SIZES = ("layers", "heads", "dim", "d_model")
DECODER = "cls.predictions.decoder.weight"


def config_of(folder, **changed):
    """Change entries of config.json."""
    file = Path(folder) / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))


def weights_of(folder, **changed):
    """Change tensors of a folder, or remove those that become None."""
    file = Path(folder) / "pytorch_model.bin"
    tensors = {**load_file(file), **changed}
    torch.save({name: x for name, x in tensors.items() if x is not None}, file)


@pytest.mark.parametrize(
    "name, tensor, words",
    [
        ("hf-gpt2", "lm_head.weight", "differ"),
        ("hf-bloom", "lm_head.weight", "differ"),
        ("hf-bart", "model.encoder.embed_tokens.weight", "differ"),
        ("hf-roformer", DECODER, "tie_word_embeddings"),
        ("roformer-v2", DECODER, "tie_word_embeddings"),
        ("gau-alpha", DECODER, "tie_word_embeddings"),
    ],
)
def test_another_matrix_where_all_are_one(tmp_path, out, name, tensor, words):
    """Also where config.json does not say so, as in the usual form of these classes."""
    source = SOURCES[name](tmp_path / "source")
    weights_of(source, **{tensor: torch.randn(len(SYMBOLS), 16)})
    refuses([tensor, words], "import", name, source, out)


@pytest.mark.parametrize(
    "name, bias",
    [
        ("hf-bart", "model.encoder.layers.0.fc1.bias"),
        ("hf-gpt2", "transformer.h.1.attn.c_attn.bias"),
        ("hf-modernbert", "model.layers.1.mlp_norm.bias"),
        ("hf-roberta", "lm_head.dense.bias"),
    ],
)
def test_a_bias_that_is_missing(tmp_path, out, name, bias):
    source = SOURCES[name](tmp_path / "source")
    weights_of(source, **{bias: None})
    refuses([f"has no tensor {bias}"], "import", name, source, out)


@pytest.mark.parametrize(
    "name, tensor, size, words",
    [
        (
            "hf-llama",
            "model.norm.weight",
            (8,),
            "has size 8, but the settings beside it require 16",
        ),
        ("hf-llama", "model.layers.0.input_layernorm.weight", (), "require 16"),
        ("hf-llama", "model.layers.1.mlp.up_proj.weight", (16, 64), "require 16 columns"),
        ("hf-t5", "encoder.final_layer_norm.weight", (1, 16), "has size 1 x 16"),
        (
            "hf-gpt-neox",
            "gpt_neox.layers.0.attention.query_key_value.weight",
            (47, 16),
            "has size 47 x 16, and cannot be split into 3 parts of 2 heads",
        ),
        ("hf-gpt2", "transformer.h.0.attn.c_attn.weight", (2,), "cannot be split into 3 parts"),
        ("hf-marian", "model.encoder.embed_positions.weight", (39, 16), "39 rows, and the longest"),
        ("hf-roformer", "roformer.encoder.embed_positions.weight", (40, 8), "sine table"),
        ("roformer-v2", "roformer.encoder.embed_positions.weight", (40, 8), "sine table"),
        ("roformer-v2", "roformer.embeddings.LayerNorm.weight", (16,), "unexpected tensor"),
        ("roformer-v2", "roformer.encoder.layer.0.output.dense.bias", (16,), "unexpected tensor"),
        ("gau-alpha", "gau_alpha.encoder.layer.0.gau.q_scaleoffset.bias", (8,), "unexpected"),
    ],
)
def test_tensors_of_other_sizes_and_names(tmp_path, out, name, tensor, size, words):
    source = SOURCES[name](tmp_path / "source")
    weights_of(source, **{tensor: torch.ones(size)})
    refuses([tensor, words], "import", name, source, out)


def test_an_entry_under_its_other_name_is_read(tmp_path, out):
    source = SOURCES["hf-bloom"](tmp_path / "source")
    convert("import", "hf-bloom", source, out)
    want = load_file(out / "checkpoint.pt")["cfg"]["model"]
    config_of(source, n_head=None, num_attention_heads=2, hidden_size=None, n_embed=16)
    convert("import", "hf-bloom", source, out)
    assert load_file(out / "checkpoint.pt")["cfg"]["model"] == want


def test_what_is_absent_has_the_value_of_the_class():
    """M2M100 has other usual values than its relatives."""
    for name, usual in (("hf-m2m100", ("relu", False)), ("hf-mbart", ("gelu", True))):
        source = table_of(name)
        required = [entry.theirs for entry in source.entries if not hasattr(entry, "value")]
        config = Config("config.json", {e: 2 for e in required if e.endswith(SIZES)})
        found = settings_of(source, next(iter(source.architectures.values())), config)
        assert (found["activation_fn"], found["no_scale_embedding"]) == usual


def test_what_the_class_loads_and_cannot_run(transformers, tmp_path, out):
    source = SOURCES["hf-bart"](tmp_path / "source")
    config_of(source, activation_function="relu", vocab_size=len(SYMBOLS), dropout=None)
    words = ["source: BartForConditionalGeneration of transformers cannot compute it"]
    refuses(words, "import", "hf-bart", source, out, "--verify")


YARN = {"rope_type": "yarn", "factor": 4.0}
LINEAR = {"rope_type": "linear", "factor": 2.0}
PAIRS = {"rope_type": "longrope", "short_factor": [1.0, 2.0], "long_factor": [1.0, 2.0]}


@pytest.mark.parametrize(
    "entries, words",
    [
        ({"rope_theta": 5.0, "rope_parameters": {"rope_theta": 7.0}}, "rope_theta is 7.0 and"),
        ({"rope_scaling": LINEAR, "rope_parameters": {"rope_theta": 7.0}}, "rope_parameters is"),
        ({"rope_scaling": {**LINEAR, "type": "yarn"}}, "type is 'yarn' and rope_type is 'linear'"),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor is None"),
        ({"rope_scaling": {**LINEAR, "factor": float("inf")}}, "factor is inf"),
        ({"rope_scaling": {**YARN, "attention_factor": 3.0}}, "attention_factor is 3.0"),
        ({"rope_scaling": {**YARN, "factor": 0.5}}, "attention_factor is 1.0"),
        ({"rope_scaling": {**YARN, "mscale": 0.7, "mscale_all_dim": 1.0}}, "mscale 0.7"),
        (
            {
                "rope_scaling": {**YARN, "original_max_position_embeddings": 8},
                "original_max_position_embeddings": 16,
            },
            "original_max_position_embeddings is 16 and",
        ),
        ({"rope_scaling": {**PAIRS, "attention_factor": 1.1}}, "attention_factor is 1.1"),
    ],
)
def test_rotary_entries(entries, words):
    with pytest.raises(UsageError, match=words):
        rope_settings(Config("config.json", {"max_position_embeddings": 32, **entries}))


def test_a_factor_of_longrope_follows_from_the_lengths():
    """As in the class, where rope_scaling does not say it."""
    scaling = {**PAIRS, "original_max_position_embeddings": 8}
    entries = {"max_position_embeddings": 32, "rope_scaling": scaling}
    assert rope_settings(Config("config.json", entries))["rotary_scaling_factor"] == 4.0


def test_rows_that_fill_a_matrix_up(tmp_path, out, capsys):
    """From 11 symbols to the next multiple of 8, and to nothing else."""
    source = SOURCES["hf-llama"](tmp_path / "source")
    names = ("model.embed_tokens.weight", "lm_head.weight")
    for rows in (13, 24, 16):
        weights_of(source, **{name: torch.randn(rows, 16) for name in names})
        if rows != 16:
            words = [f"model.embed_tokens.weight has {rows} rows", "vocab.txt has 11 symbols"]
            refuses(words, "import", "hf-llama", source, out)
    convert("import", "hf-llama", source, out)
    assert "left out 5 rows of lm_head.weight" in capsys.readouterr().out
    vocab = {symbol: number for number, symbol in enumerate([*SYMBOLS, "more"])}
    (source / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocab}}))
    refuses(["16 rows", "11 symbols"], "import", "hf-llama", source, out)
    weights_of(source, **{"lm_head.weight": torch.randn(8, 16)})
    refuses(["lm_head.weight has 8 rows", "has 16"], "import", "hf-llama", source, out)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Folders that exports write, with 48 symbols in each."""
    pytest.importorskip("safetensors", reason="exporting needs the package")
    folder = tmp_path_factory.mktemp("exported")
    words = [*WORDS, "x1", "x2", "x3", "x4"]
    target, settings = EXPRESSED["grouped"]
    path = checkpoint_of(folder / "lm", settings, words)
    convert("export", target, path, folder / target)
    path = trained(folder / "masked", position_encoding="learned", words=words[:-1])
    convert("export", "hf-roberta", path, folder / "hf-roberta")
    return folder


@pytest.mark.parametrize("name", ["hf-llama", "hf-roberta"])
@pytest.mark.parametrize("lines", [40, 20])
def test_a_dictionary_that_is_cut(tmp_path, out, exported, name, lines):
    """At a line, so that what is left looks like a dictionary; 44 of 48 symbols look padded."""
    dictionary = exported / name / "dict.txt"
    content = dictionary.read_text()
    convert("import", name, exported / name, out)
    words = content.splitlines(keepends=True)
    mask = [line for line in words[-1:] if line.startswith("<mask>")]
    try:
        dictionary.write_text("".join([*words[:lines], *mask]))
        said = [f"{name}/dict.txt has {lines + 4 + len(mask)} symbols", "48 rows"]
        refuses(said, "import", name, exported / name, tmp_path / "none")
        dictionary.write_bytes("ä 1\n".encode("latin-1"))
        refuses(["dict.txt", "encoding"], "import", name, exported / name, tmp_path / "none")
    finally:
        dictionary.write_text(content)


def test_numbers_of_config_json_are_those_of_the_dictionary(tmp_path, out):
    source = SOURCES["hf-bart"](tmp_path / "source")
    (source / "dict.txt").write_text("".join(f"w{number} 1\n" for number in range(7)))
    refuses(
        ["eos_token_id is 4, but </s> is number 2", "dict.txt"], "import", "hf-bart", source, out
    )
    config_of(source, eos_token_id=2, decoder_start_token_id=None)
    convert("import", "hf-bart", source, out)


def test_another_end_in_the_tokenizer_is_said(tmp_path, out, capsys):
    """Many models of others have two ends; the tokenizer's is in their training data."""
    source = SOURCES["hf-llama"](tmp_path / "source")
    config_of(source, eos_token_id=6, pad_token_id=0)
    convert("import", "hf-llama", source, out)
    printed = capsys.readouterr().out
    assert "eos_token_id in config.json is 6, but the tokenizer has number 4, '[SEP]'" in printed
    assert "pad_token_id in config.json" not in printed
    (source / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "[SEP]", "extra_special_tokens": 3})
    )
    refuses(["extra_special_tokens is 3", "a list"], "import", "hf-llama", source, tmp_path / "no")


def test_a_gate_with_gelu_is_not_the_approximation(tmp_path):
    """``gated-gelu`` is that of tanh there."""
    (entry,) = (e for e in table_of("hf-t5").entries if e.theirs == "feed_forward_proj")
    for form, activation, written in (
        ("glu", "gelu", "gated-gelu_python"),
        ("glu", "gelu_accurate", "gated-gelu_new"),
        ("mlp", "gelu", "gelu"),
    ):
        given = {"feed_forward": form, "activation_fn": activation}
        assert entry.entries(given, "checkpoint.pt") == {"feed_forward_proj": written}
