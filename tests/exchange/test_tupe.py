"""Imports of TUPE's released checkpoints against formulas and stored outputs."""

import sys
import types

import pytest
import torch
from conftest import SHARED
from support.conversion import convert, load, refuses
from support.parts import places_of
from support.tupe_checkpoints import FLAGS, SPECIAL, WORDS, released, write

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.reading import load_file
from fairseq_posenc.exchange.reader import Reader
from fairseq_posenc.exchange.released_formulas import ReleasedTUPE

pytestmark = pytest.mark.formulas

STACK = "decoder.sentence_encoder."
POSITIONS, RELATIVE = STACK + "pos.weight", STACK + "relative_attention_bias.weight"
#: The form of a checkpoint's parameters, its args, and settings that an import must find.
VARIANTS = {
    "tupe-a": ({"relative": False}, {}, {"position_encoding": "tupe"}),
    "tupe-r": ({}, {}, {"position_encoding": "tupe+t5", "untie_cls": True, "dropout": 0.2}),
    "early": ({"early": True}, {}, {}),
    "pre-norm": (
        {"before": True, "embedding_norm": False},
        {"encoder_normalize_before": True},
        {"layernorm_embedding": False},
    ),
    "relu": ({}, {"activation_fn": "relu", "max_rel_pos": 24}, {"t5_max_distance": 24}),
    "buckets": ({}, {"rel_pos_bins": 16}, {"t5_num_buckets": 16}),
    "scale": ({}, {"attn_scale_factor": 3.0, "rel_pos_bins": 32}, {"t5_num_buckets": 32}),
}


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_matches_the_formulas(tmp_path, out, capsys, variant):
    parts, args, settings = VARIANTS[variant]
    state = {**released(**parts), POSITIONS: torch.randn(61, 16)}
    if RELATIVE in state:
        state[RELATIVE] = torch.randn(args.get("rel_pos_bins", 32) + 1, 2)
    convert("import", "tupe", write(tmp_path / "source", state, args), out, "--verify")
    printed = capsys.readouterr().out
    assert "float64" in printed and " --position-encoding tupe" in printed
    assert ("model.layernorm_embedding=false" in printed) == (variant == "pre-norm")
    model, dictionary = load(out)
    assert dictionary.symbols == [*SPECIAL, *WORDS, "<mask>"]
    assert dictionary.get_count(dictionary.index("w2")) == 7
    assert {name: getattr(model.args, name) for name in settings} == settings
    tokens = torch.randint(3, len(dictionary), (2, 60))
    tokens[:, 0], tokens[1, 31:] = 0, 1
    want = ReleasedTUPE(state, {**FLAGS, **args}).logits(tokens)
    real = tokens.ne(1)
    have = model(tokens)[0][real].double()
    torch.testing.assert_close(have, want[real], atol=5e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["tupe_a_mlm", "tupe_r_mlm"])
def test_stored_outputs(reference_of, tmp_path, out, name):
    """The stored logits are from the formulas in tests/golden, or from the released code."""
    expected = reference_of(name)
    source = write(tmp_path / "source", expected["state_dict"], expected["config"])
    words = expected["meta"]["symbols"][len(SPECIAL) : -1]
    (source.parent / "dict.txt").write_text("".join(f"{word} 1\n" for word in words))
    compare(expected, source, out)


def test_a_released_checkpoint(released, out):
    """A checkpoint of the released trainer, with its optimiser's state."""
    expected = released("tupe_r_mlm")
    compare(expected, SHARED / "golden" / "tupe_ckpt" / "tupe_r_mlm" / "checkpoint_last.pt", out)


def compare(expected, source, out):
    convert("import", "tupe", source, out, "--verify")
    model, dictionary = load(out)
    assert dictionary.symbols == expected["meta"]["symbols"]
    bias = model.encoder.sentence_encoder.position_bias(places_of(12))[0]
    torch.testing.assert_close(bias, expected["outputs"]["bias"], atol=1e-5, rtol=0)
    for batch in ("full", "padded"):
        tokens = expected["inputs"][f"tokens_{batch}"]
        with torch.no_grad():
            logits, _ = model(tokens)
        real = tokens.ne(dictionary.pad())
        want = expected["outputs"][f"logits_{batch}"]
        torch.testing.assert_close(logits[real], want[real], atol=5e-5, rtol=1e-5)


@pytest.mark.parametrize("dense", [True, False])
@torch.no_grad()
def test_heads(tmp_path, out, capsys, dense):
    """Heads read position 0, with a dense layer and tanh or, in an early version, without."""
    state, head = released(heads=[("topic", dense)]), "classification_heads.topic."
    convert("import", "tupe", write(tmp_path / "source", state), out, "--verify")
    assert "classification head topic" in capsys.readouterr().out
    model, _ = load(out)
    tokens = torch.randint(3, 18, (2, 9))
    x = model(tokens, features_only=True)[0][:, 0]
    if dense:
        x = torch.tanh(x @ state[head + "dense.weight"].t() + state[head + "dense.bias"])
    want = x @ state[head + "out_proj.weight"].t() + state[head + "out_proj.bias"]
    torch.testing.assert_close(model(tokens, classification_head_name="topic")[0], want)


@pytest.mark.parametrize("part", ["dense", "out_proj"])
def test_a_wrong_head_is_found(tmp_path, out, monkeypatch, part):
    """--verify also compares the outputs of classification heads."""
    state = released(heads=[("topic", True), ("tone", True)])
    path = write(tmp_path / "source", state)
    right = Reader.put

    def wrong(self, ours, value, theirs):
        right(self, ours, value + 0.01 * (f"tone.{part}.bias" in theirs), theirs)

    monkeypatch.setattr(Reader, "put", wrong)
    refuses(["in head tone", "0.0001"], "import", "tupe", path, out, "--verify")


@pytest.mark.parametrize("zipped", [True, False])
def test_statistics_of_classes_that_are_gone(tmp_path, out, monkeypatch, zipped):
    """Only the importer accepts the classes of fairseq 0.9 for training statistics."""
    meters = types.ModuleType("fairseq.meters")
    monkeypatch.setitem(sys.modules, "fairseq.meters", meters)
    kinds = ("AverageMeter", "TimeMeter", "StopwatchMeter")
    for name in kinds:
        setattr(meters, name, type(name, (), {"__module__": "fairseq.meters", "sum": 3.0}))
    extra = {"train_meters": {name: getattr(meters, name)() for name in kinds}}
    path = write(tmp_path / "source", released())
    content = {**load_file(path), "extra_state": extra}
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    monkeypatch.delitem(sys.modules, "fairseq.meters")
    with pytest.raises(UsageError, match="fairseq.meters"):
        load_file(path)
    convert("import", "tupe", path, out)
    assert set(load_file(out / "checkpoint.pt")) >= {"cfg", "model", "optimizer_history"}
    with pytest.raises(UsageError, match="fairseq.meters"):
        load_file(path)


class Harmful:
    def __reduce__(self):
        return exec, ("raise RuntimeError('it ran')",)


def test_code_is_not_run(tmp_path, out):
    path = write(tmp_path / "source", released(), extra_state=Harmful())
    refuses([str(path), "exec"], "import", "tupe", path, out)


def test_heads_with_a_dense_layer_and_without_one_are_refused(tmp_path, out):
    """Our models have one activation for all heads."""
    state = released(heads=[("topic", True), ("tone", False)])
    path = write(tmp_path / "source", state)
    words = ["has no tensor classification_heads.tone.dense.weight", "a different head"]
    refuses(words, "import", "tupe", path, out)


def test_refused_dictionaries(tmp_path, out):
    path = write(tmp_path / "source", released())
    dictionary = path.parent / "dict.txt"
    lines = dictionary.read_text().splitlines(keepends=True)
    dictionary.write_text("".join(lines[:-1]))
    words = ["18 rows", "dict.txt", "17 symbols"]
    refuses(words, "import", "tupe", path, out)
    dictionary.write_text("".join([*lines[:-1], "nothing\n"]))
    words = ["dict.txt: cannot be read as a fairseq dictionary"]
    refuses(words, "import", "tupe", path, out)
    dictionary.write_text("".join([*lines[:-1], "<url> 3\n"]))
    refuses(["'<url>' occurs twice"], "import", "tupe", path, out)
    other = dictionary.rename(tmp_path / "other.txt")
    refuses(["dict.txt", "--vocab"], "import", "tupe", path, out)
    other.write_text("".join(lines))
    convert("import", "tupe", path, out, "--vocab", other)


def test_other_files(tmp_path, out):
    path = write(tmp_path / "source", released())
    convert("import", "tupe", path, out)
    words = ["checkpoint.pt", "not a checkpoint of fairseq 0.9"]
    refuses(words, "import", "tupe", out / "checkpoint.pt", tmp_path / "again")
    refuses(["source", "checkpoint.pt"], "import", "tupe", path.parent, tmp_path / "again")
    torch.save([1], path)
    refuses(words, "import", "tupe", path, tmp_path / "again")
