"""Model folders of transformers that contradict themselves are refused, or read in one way.

A line of refused_imports.txt has a format, a change to a folder of this format, and words of the
refusal.  The change is entries of config.json, or a tensor and its size.  test_hostile.py covers
wrong types, missing entries and wrong sizes of everything that an export writes.
"""

import json

import pytest
import torch
from support.conversion import SYMBOLS, convert, refuses
from support.expressed import WORDS, checkpoint_of
from support.foreign_models import SOURCES
from support.lists import rows_of

from fairseq_posenc.checkpoints.reading import load_file

pytestmark = pytest.mark.refusals

ROWS = rows_of("refused_imports.txt")


def config_of(source, **changed):
    """Change entries of a folder's config.json, or of a checkpoint's args."""
    if source.is_file():
        content = load_file(source)
        vars(content["args"]).update(changed)
        return torch.save(content, source)
    file = source / "config.json"
    return file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))


def weights_of(source, **changed):
    file = source if source.is_file() else source / "pytorch_model.bin"
    content = load_file(file)
    content.get("model", content).update(changed)
    torch.save(content, file)


@pytest.mark.parametrize("row", ROWS, ids=" ".join)
def test_entries_and_tensors(tmp_path, out, row):
    (name, change), words = row[0].split(" ", 1), row[1:]
    source = SOURCES[name](tmp_path / "source")
    if change.startswith("{"):
        config_of(source, **json.loads(change))
    else:
        tensor, *size = change.split()
        weights_of(source, **{tensor: torch.ones([int(number) for number in size])})
    refuses([str(source), *words], "import", name, source, out)


def test_an_entry_under_its_other_name_is_read(tmp_path, out):
    source = SOURCES["hf-bloom"](tmp_path / "source")
    convert("import", "hf-bloom", source, out)
    want = load_file(out / "checkpoint.pt")["cfg"]["model"]
    config_of(source, n_head=None, num_attention_heads=4, hidden_size=None, n_embed=16)
    convert("import", "hf-bloom", source, out)
    assert load_file(out / "checkpoint.pt")["cfg"]["model"] == want


def test_older_versions_name_layers_and_bases_otherwise(tmp_path, out):
    source = SOURCES["hf-modernbert"](tmp_path / "source")
    config_of(source, layer_types=None, rope_parameters=None, max_position_embeddings=40)
    config_of(source, global_rope_theta=700.0, local_rope_theta=None, local_attention=6)
    config_of(source, global_attn_every_n_layers=2)
    convert("import", "hf-modernbert", source, out)
    settings = load_file(out / "checkpoint.pt")["cfg"]["model"]
    assert (settings["rotary_base"], settings["local_window"]) == (700.0, "80,6")


def test_what_the_class_loads_and_cannot_run(transformers, tmp_path, out):
    source = SOURCES["hf-bart"](tmp_path / "source")
    config_of(source, activation_function="relu", vocab_size=len(SYMBOLS), dropout=None)
    words = ["source: BartForConditionalGeneration of transformers failed ("]
    refuses(words, "import", "hf-bart", source, out, "--verify")


def test_rows_that_fill_a_matrix_up(tmp_path, out, capsys):
    """For 11 symbols, 16 rows are accepted (the next multiple of 8), but not 13 or 24."""
    source = SOURCES["hf-llama"](tmp_path / "source")
    config_of(source, vocab_size=None)
    names = ("model.embed_tokens.weight", "lm_head.weight")
    for rows in (13, 24, 16):
        weights_of(source, **{name: torch.randn(rows, 16) for name in names})
        if rows != 16:
            words = [f"model.embed_tokens.weight has {rows} rows", "vocab.txt has 11 symbols"]
            refuses(words, "import", "hf-llama", source, out)
    convert("import", "hf-llama", source, out)
    assert "left out 5 rows of lm_head.weight" in capsys.readouterr().out
    weights_of(source, **{"lm_head.weight": torch.randn(8, 16)})
    refuses(["lm_head.weight has 8 rows", "11 symbols"], "import", "hf-llama", source, out)
    vocab = {symbol: number for number, symbol in enumerate([*SYMBOLS, "more"])}
    (source / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocab}}))
    refuses(["16 rows", "11 symbols"], "import", "hf-llama", source, out)


@pytest.mark.parametrize("target, name", [("hf-llama", "llama"), ("hf-roberta", "roberta")])
def test_a_dictionary_that_is_cut(tmp_path, out, target, name):
    """The cut is between lines, so the rest looks valid; 48 rows for 44 symbols look padded."""
    pytest.importorskip("safetensors", reason="exporting needs the package")
    words = [*WORDS, "x1", "x2", "x3", "x4"][: 43 if name == "roberta" else 44]
    convert("export", target, checkpoint_of(tmp_path / "ours", name, words), tmp_path / name)
    dictionary = tmp_path / name / "dict.txt"
    convert("import", target, tmp_path / name, out)
    lines = dictionary.read_text().splitlines(keepends=True)
    mask = [line for line in lines[-1:] if line.startswith("<mask>")]
    for left in (40, 20):
        dictionary.write_text("".join([*lines[:left], *mask]))
        said = [f"{name}/dict.txt has {left + 4 + len(mask)} symbols", "48 rows"]
        refuses(said, "import", target, tmp_path / name, tmp_path / "none")
    dictionary.write_bytes("ä 1\n".encode("latin-1"))
    refuses(["dict.txt", "encoding"], "import", target, tmp_path / name, tmp_path / "none")


def test_numbers_of_config_json_are_those_of_the_dictionary(tmp_path, out):
    source = SOURCES["hf-bart"](tmp_path / "source")
    (source / "dict.txt").write_text("".join(f"w{number} 1\n" for number in range(7)))
    config_of(source, eos_token_id=4)
    words = ["eos_token_id is 4, but </s> is number 2", "dict.txt"]
    refuses(words, "import", "hf-bart", source, out)
    config_of(source, eos_token_id=2, decoder_start_token_id=None)
    convert("import", "hf-bart", source, out)


def test_another_end_in_the_tokenizer_is_said(tmp_path, out, capsys):
    """Many published models have two end symbols; their training data has the tokenizer's."""
    source = SOURCES["hf-llama"](tmp_path / "source")
    config_of(source, eos_token_id=6, pad_token_id=1)
    convert("import", "hf-llama", source, out)
    printed = capsys.readouterr().out
    assert "eos_token_id in config.json is 6, but the tokenizer has number 2, '[SEP]'" in printed
    assert "pad_token_id in config.json" not in printed
