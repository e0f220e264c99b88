"""TUPE's released checkpoints: read, compared with their formulas and their stored outputs."""

import sys
import types
from argparse import Namespace

import pytest
import torch
from conftest import SHARED
from conversion import convert, linear, load, norm, refuses

from fairseq_posenc.checkpoints.reading import load_file
from fairseq_posenc.convert.reader import Reader
from fairseq_posenc.convert.tupe_reference import ReleasedModel
from fairseq_posenc.errors import UsageError

WORDS = [f"w{number}" for number in range(10)]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<file>", "<email>", "<url>"]
ARGS = {
    **{"encoder_layers": 2, "encoder_embed_dim": 16, "encoder_ffn_embed_dim": 24},
    **{"encoder_attention_heads": 2, "activation_fn": "gelu", "encoder_normalize_before": False},
    **{"dropout": 0.2, "attention_dropout": 0.1, "activation_dropout": 0.0, "max_positions": 20},
}
# flags of the released model that args may leave out
FLAGS = {"pooler_activation_fn": "tanh", "max_rel_pos": 128, "attn_scale_factor": 2, **ARGS}


def released(relative=True, embedding_norm=True, before=False, early=False, heads=()):
    """Random parameters of a released model, by their names."""
    stack = "decoder.sentence_encoder."
    size = len(SPECIAL) + len(WORDS) + 1
    embedding = torch.randn(size, 16)
    state = {
        stack + "embed_tokens.weight": embedding,
        stack + "pos.weight": torch.randn(21, 16),
        **norm(stack + "pos_ln", 16),
        "decoder.lm_head.weight": embedding,
        "decoder.lm_head.bias": torch.randn(size),
        **linear("decoder.lm_head.dense", 16, 16),
        **norm("decoder.lm_head.layer_norm", 16),
    }
    if early:
        state.update(linear(stack + "pos_proj", 32, 16))
    else:
        for side in "qk":
            state.update(linear(f"{stack}pos_{side}_linear", 16, 16))
    for number in range(2):
        layer = f"{stack}layers.{number}."
        both = linear(layer + "self_attn.in_proj", 48, 16)
        state.update({key.replace("in_proj.", "in_proj_"): v for key, v in both.items()})
        state.update(linear(layer + "self_attn.out_proj", 16, 16))
        state.update(norm(layer + "self_attn_layer_norm", 16))
        state.update(linear(layer + "fc1", 24, 16))
        state.update(linear(layer + "fc2", 16, 24))
        state.update(norm(layer + "final_layer_norm", 16))
    if embedding_norm:
        state.update(norm(stack + "emb_layer_norm", 16))
    if before:
        state.update(norm(stack + "emb_out_layer_norm", 16))
    if relative:
        state[stack + "relative_attention_bias.weight"] = torch.randn(33, 2)
    for name, dense in heads:
        state.update(linear(f"classification_heads.{name}.out_proj", 3, 16))
        if dense:
            state.update(linear(f"classification_heads.{name}.dense", 16, 16))
    return state


def write(folder, state, args=None, **more):
    """A checkpoint with its dictionary, as fairseq 0.9 leaves them."""
    folder.mkdir(exist_ok=True)
    content = {"args": Namespace(**{**ARGS, **(args or {})}), "model": state, **more}
    torch.save(content, folder / "checkpoint.pt")
    (folder / "dict.txt").write_text("".join(f"{w} {9 - n}\n" for n, w in enumerate(WORDS)))
    return folder / "checkpoint.pt"


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


VARIANTS = {
    "tupe-a": ({"relative": False}, {}),
    "tupe-r": ({}, {}),
    "early": ({"early": True}, {}),
    "pre-norm": ({"before": True, "embedding_norm": False}, {"encoder_normalize_before": True}),
    "relu": ({}, {"activation_fn": "relu"}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_matches_the_formulas(tmp_path, out, capsys, variant):
    parts, args = VARIANTS[variant]
    state = released(**parts)
    convert("import", "tupe", write(tmp_path / "source", state, args), out, "--verify")
    printed = capsys.readouterr().out
    assert (
        "float64" in printed
        and f"--position-encoding {'tupe' if variant == 'tupe-a' else 'tupe+t5'} " in printed
    )
    assert ("model.layernorm_embedding=false" in printed) == (variant == "pre-norm")
    model, dictionary = load(out)
    assert dictionary.symbols == [*SPECIAL, *WORDS, "<mask>"]
    assert dictionary.get_count(dictionary.index("w2")) == 7
    assert (model.args.untie_cls, model.args.dropout) == (True, 0.2)
    tokens = torch.randint(3, len(dictionary), (2, 20))
    tokens[:, 0], tokens[1, 11:] = 0, 1
    want = ReleasedModel(state, {**FLAGS, **args}).logits(tokens)
    with torch.no_grad():
        logits, _ = model(tokens)
    real = tokens.ne(1)
    torch.testing.assert_close(logits[real].double(), want[real], atol=5e-5, rtol=1e-5)


def test_the_formulas_can_tell(tmp_path, out):
    """A model with two rows of the table exchanged is not the same model."""
    state = released()
    convert("import", "tupe", write(tmp_path / "source", state), out)
    name = "decoder.sentence_encoder.pos.weight"
    order = [1, 0, *range(2, 21)]
    wrong = ReleasedModel({**state, name: state[name][order]}, FLAGS).logits
    model, _ = load(out)
    tokens = torch.randint(3, 18, (1, 12))
    with torch.no_grad():
        logits, _ = model(tokens)
    assert (logits - wrong(tokens)).abs().max() > 1e-2


@pytest.mark.parametrize("name", ["tupe_a_mlm", "tupe_r_mlm"])
def test_stored_outputs(reference_of, tmp_path, out, name):
    """Logits by the formulas in tests/golden, and those that the released code computed."""
    expected = reference_of(name)
    compare(expected, write_reference(tmp_path / "source", expected), out)


def test_a_released_checkpoint(released, out):
    """As the trainer of the released code left it, with the state of its optimiser."""
    expected = released("tupe_r_mlm")
    compare(expected, SHARED / "golden" / "tupe_ckpt" / "tupe_r_mlm" / "checkpoint_last.pt", out)


def write_reference(folder, reference, **more):
    """The checkpoint of a stored reference."""
    source = write(folder, {**reference["state_dict"], **more}, reference["config"])
    words = reference["meta"]["symbols"][len(SPECIAL) : -1]
    (folder / "dict.txt").write_text("".join(f"{word} 1\n" for word in words))
    return source


def compare(expected, source, out):
    convert("import", "tupe", source, out, "--verify")
    model, dictionary = load(out)
    assert dictionary.symbols == expected["meta"]["symbols"]
    for batch in ("full", "padded"):
        tokens = expected["inputs"][f"tokens_{batch}"]
        with torch.no_grad():
            logits, _ = model(tokens)
        real = tokens.ne(dictionary.pad())
        want = expected["outputs"][f"logits_{batch}"]
        torch.testing.assert_close(logits[real], want[real], atol=5e-5, rtol=1e-5)


def test_half_precision(reference_of, tmp_path, out):
    expected = reference_of("tupe_r_mlm")
    state = {key: value.half() for key, value in expected["state_dict"].items()}
    convert("import", "tupe", write_reference(tmp_path / "source", expected, **state), out)
    model, _ = load(out)
    tokens = expected["inputs"]["tokens_full"]
    with torch.no_grad():
        logits, _ = model(tokens)
    want = expected["outputs"]["logits_full_fp16ckpt"]
    torch.testing.assert_close(logits, want, atol=5e-5, rtol=1e-5)


@pytest.mark.parametrize("dense", [True, False])
def test_heads(tmp_path, out, capsys, dense):
    """Position 0, through a dense layer and tanh, or in an early version straight to classes."""
    state = released(heads=[("topic", dense)])
    convert("import", "tupe", write(tmp_path / "source", state), out, "--verify")
    assert "classification head topic" in capsys.readouterr().out
    model, _ = load(out)
    tokens = torch.randint(3, 18, (2, 9))
    with torch.no_grad():
        features, _ = model(tokens, features_only=True)
        logits, _ = model(tokens, classification_head_name="topic")
    x, head = features[:, 0], "classification_heads.topic."
    if dense:
        x = torch.tanh(x @ state[head + "dense.weight"].t() + state[head + "dense.bias"])
    want = x @ state[head + "out_proj.weight"].t() + state[head + "out_proj.bias"]
    torch.testing.assert_close(logits, want)


@pytest.mark.parametrize("part", ["dense", "out_proj"])
def test_a_wrong_head_is_found(tmp_path, out, monkeypatch, part):
    """--verify compares the classes, too."""
    state = released(heads=[("topic", True), ("tone", True)])
    path = write(tmp_path / "source", state)
    right = Reader.move_module

    def wrong(self, theirs, ours):
        right(self, theirs, ours)
        if theirs == f"classification_heads.tone.{part}":
            self.parameters[ours + ".bias"] = self.parameters[ours + ".bias"] + 0.01

    monkeypatch.setattr(Reader, "move_module", wrong)
    refuses(["in head tone", "0.0001"], "import", "tupe", path, out, "--verify")
    assert not out.exists()


@pytest.mark.parametrize(
    "args, flags",
    [
        ({"max_rel_pos": 24}, {"t5_max_distance": 24}),
        ({"rel_pos_bins": 16}, {"t5_num_buckets": 16}),
        ({"attn_scale_factor": 1}, {}),
        ({"attn_scale_factor": 3.0, "rel_pos_bins": 32, "max_rel_pos": 128}, {}),
    ],
    ids=str,
)
def test_constants_that_became_flags(tmp_path, out, args, flags):
    state = released()
    if "rel_pos_bins" in args:
        state["decoder.sentence_encoder.relative_attention_bias.weight"] = torch.randn(17, 2)
        if args["rel_pos_bins"] == 32:
            state["decoder.sentence_encoder.relative_attention_bias.weight"] = torch.randn(33, 2)
    state["decoder.sentence_encoder.pos.weight"] = torch.randn(61, 16)
    path = write(tmp_path / "source", state, args)
    convert("import", "tupe", path, out, "--verify")
    model, _ = load(out)
    assert {name: getattr(model.args, name) for name in flags} == flags
    tokens = torch.randint(3, 18, (2, 60))
    with torch.no_grad():
        logits, _ = model(tokens)
    want, usual = (
        ReleasedModel(state, given).logits(tokens) for given in ({**FLAGS, **args}, FLAGS)
    )
    torch.testing.assert_close(logits.double(), want, atol=5e-5, rtol=1e-5)
    assert (want - usual).abs().max() > 1e-3 or set(args) == {"rel_pos_bins"}


class Meter:
    """What fairseq 0.9 keeps of its training statistics."""

    def __init__(self):
        self.sum, self.count = 3.0, 2


@pytest.mark.parametrize("zipped", [True, False])
def test_statistics_of_classes_that_are_gone(tmp_path, out, monkeypatch, zipped):
    meters = types.ModuleType("fairseq.meters")
    monkeypatch.setitem(sys.modules, "fairseq.meters", meters)
    kinds = ("AverageMeter", "TimeMeter", "StopwatchMeter")
    for name in kinds:
        setattr(meters, name, type(name, (Meter,), {"__module__": "fairseq.meters"}))
    extra = {"train_meters": {name: getattr(meters, name)() for name in kinds}}
    path = write(tmp_path / "source", released(), extra_state=extra)
    content = {"args": Namespace(**ARGS), "model": released(), "extra_state": extra}
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    monkeypatch.delitem(sys.modules, "fairseq.meters")
    with pytest.raises(UsageError, match="fairseq.meters"):
        load_file(path)  # only the importer knows them
    convert("import", "tupe", path, out)
    assert set(load_file(out / "checkpoint.pt")) >= {"cfg", "model", "optimizer_history"}
    with pytest.raises(UsageError, match="fairseq.meters"):
        load_file(path)  # and afterwards, still


class Harmful:
    def __reduce__(self):
        return exec, ("raise RuntimeError('it ran')",)


class TestRefused:
    def test_code(self, tmp_path, out):
        path = write(tmp_path / "source", released(), extra_state=Harmful())
        refuses([str(path), "exec"], "import", "tupe", path, out)

    def test_no_table_of_positions(self, tmp_path, out):
        state = released()
        del state["decoder.sentence_encoder.pos.weight"]
        path = write(tmp_path / "source", state)
        refuses([str(path), "sentence_encoder.pos.weight"], "import", "tupe", path, out)

    @pytest.mark.parametrize(
        "args, words",
        [
            ({"activation_fn": "mish"}, ["activation_fn 'mish'"]),
            ({"encoder_layers": 3}, ["no tensor decoder.sentence_encoder.layers.2."]),
            ({"encoder_layers": 1}, ["unexpected tensor decoder.sentence_encoder.layers.1."]),
            ({"encoder_ffn_embed_dim": 20}, ["fc1.weight", "24 x 16", "20 x 16"]),
            ({"rel_pos_bins": 16}, ["rel_pos_bins is 16", "17 rows", "33 x 2"]),
            ({"attn_scale_factor": 0}, ["attn_scale_factor 0", "above 0"]),
            ({"max_rel_pos": "far"}, ["max_rel_pos 'far'", "whole number"]),
            ({"encoder_layers": "2"}, ["encoder_layers '2'", "whole number"]),
            ({"dropout": 2.0}, ["dropout 2.0", "between 0 and 1"]),
            ({"encoder_attention_heads": 4}, ["relative_attention_bias.weight", "x 2", "x 4"]),
        ],
        ids=str,
    )
    def test_args(self, tmp_path, out, args, words):
        path = write(tmp_path / "source", released(), args)
        refuses([str(path), *words], "import", "tupe", path, out)
        assert not out.exists()

    def test_dictionaries(self, tmp_path, out):
        path = write(tmp_path / "source", released())
        dictionary = path.parent / "dict.txt"
        lines = dictionary.read_text().splitlines(keepends=True)
        dictionary.write_text("".join(lines[:-1]))
        words = ["18 rows", "dict.txt", "17 symbols"]
        refuses(words, "import", "tupe", path, out)
        dictionary.write_text("".join([*lines[:-1], "nothing\n"]))
        refuses(["dict.txt: line 10", "'nothing'"], "import", "tupe", path, out)
        dictionary.write_text("".join([*lines[:-1], "<url> 3\n"]))
        refuses(["'<url>' occurs twice"], "import", "tupe", path, out)
        other = dictionary.rename(tmp_path / "other.txt")
        refuses(["dict.txt", "--vocab"], "import", "tupe", path, out)
        other.write_text("".join(lines))
        convert("import", "tupe", path, out, "--vocab", other)

    def test_other_files(self, tmp_path, out):
        path = write(tmp_path / "source", released())
        content = path.read_bytes()
        refuses(["none.pt", "checkpoint.pt"], "import", "tupe", path.parent / "none.pt", out)
        refuses(["source", "checkpoint.pt"], "import", "tupe", path.parent, out)
        path.write_bytes(content[: len(content) // 2])
        refuses(["checkpoint.pt", "truncated"], "import", "tupe", path, out)
        torch.save([1], path)
        refuses(["checkpoint.pt", "not a checkpoint of fairseq 0.9"], "import", "tupe", path, out)
        convert("import", "tupe", write(tmp_path / "source", released()), out)
        ours = out / "checkpoint.pt"
        refuses(["not a checkpoint of fairseq 0.9"], "import", "tupe", ours, tmp_path / "again")

    def test_export(self, tmp_path, out):
        with pytest.raises(SystemExit):
            convert("export", "tupe", tmp_path, out)
        convert("import", "tupe", write(tmp_path / "source", released()), out)
        words = ["--position-encoding tupe+t5", "rotary"]
        refuses(words, "export", "hf-roformer", out / "checkpoint.pt", tmp_path / "back")
