"""ONNX exports, run by onnxruntime, and the real-valued rotation that they need."""

import dataclasses
import json

import pytest
import torch
from support.conversion import convert, refuses
from support.expressed import trained
from support.helpers import ENCODER_ENCODINGS, LAYERS, PAD, VOCABULARY
from support.masked_language_models import tiny
from support.parts import encoding_of

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.encodings.rotary_frequencies import frequencies
from fairseq_posenc.exchange import onnx as onnx_export
from fairseq_posenc.flags.options import by_name
from fairseq_posenc.models.kinds import MASKED

pytestmark = pytest.mark.formulas

ONE_LAYER = ["--encoder-layers", "1"]
OTHERS = ["gated:tupe+t5", "squared_relu:rotary", "shaw_values:rotary+shaw", "ffn_glu:rotary*1,t5"]
LONGEST = 40


def compositions():
    """All encoder encodings, in few compositions; none mixes relative and absolute ones."""
    made = []
    for relative in (True, False):
        groups = [[]]
        for name, encoding in sorted(ENCODINGS.items()):
            used = {ENCODINGS[other].acts.hook for other in groups[-1]}
            if encoding.relative is relative and name in ENCODER_ENCODINGS and name != "none":
                if encoding.acts.hook in used & {"input", "transform"}:
                    groups.append([])
                groups[-1].append(name)
        made += ["+".join(group) for group in groups]
    return made


@pytest.fixture(scope="module")
def runtime():
    """The package onnxruntime; skips the test if it is not installed."""
    pytest.importorskip("onnx", reason="exports are checked with onnx")
    return pytest.importorskip("onnxruntime", reason="exports are run with onnxruntime")


def batches():
    """Batches whose sizes differ from the traced example's, with and without padding."""
    for rows, length, left, right in (
        (1, 1, 0, 0),
        (1, LONGEST, 0, 0),
        (2, 5, 0, 0),
        (3, 23, 0, 9),
        (3, 12, 7, 0),
        (2, 8, 0, 8),  # the last row is only padding
    ):
        tokens = torch.randint(4, len(VOCABULARY), (rows, length))
        tokens[:, 0] = VOCABULARY.bos()
        tokens[-1, :left] = tokens[-1, length - right :] = PAD
        yield tokens


def one_head(model, kind=onnx_export.OneHead):
    return kind(model, None, VOCABULARY.symbols, by_name(model.completed_settings))


@pytest.mark.parametrize(
    "name", ["none", "learned+rotary", "kept:rotary", *compositions(), *OTHERS]
)
def test_equals_onnxruntime_at_other_sizes_than_the_example(runtime, name):
    layer, _, encoding = name.rpartition(":")
    frequencies.cache_clear()  # as in a new process
    model = tiny(encoding, *LAYERS[layer], *ONE_LAYER, length=LONGEST)
    run = onnx_export.runner(runtime, onnx_export.record(one_head(model), name))
    for tokens in batches():
        with torch.no_grad():
            want = model(tokens)[0]
        got, real = run(tokens), tokens.ne(PAD)
        assert torch.isfinite(got).all()
        torch.testing.assert_close(got[real], want[real], atol=1e-5, rtol=1e-5)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    """A checkpoint of a model for pairs of texts, with two classification heads."""
    folder = tmp_path_factory.mktemp("onnx") / "model"
    shape = {"position_encoding": "tupe+t5", "untie_cls": True, "num_segments": 2}
    return trained(folder, "topic", "tone", **shape)


@pytest.mark.parametrize(
    "head, shape", [("tone", (2, 3)), ("lm", (2, 9, 7)), ("features", (2, 9, 16))]
)
def test_the_command_writes_one_head_and_says_how_to_feed_it(
    runtime, classifier, tmp_path, capsys, head, shape
):
    out = tmp_path / "model.onnx"
    convert("export", "onnx", classifier, out, "--head", head, "--verify")
    assert "largest difference from onnxruntime" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [out]
    session = runtime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    facts = session.get_modelmeta().custom_metadata_map
    assert json.loads(facts["symbols"])[4:6] == ["a", "b"] and facts["padding"] == str(PAD)
    assert facts["max_positions"] == "40" and facts["position_encoding"] == "tupe+t5"
    tokens = torch.tensor([[0, 4, 2, 5, 2, 1, 1, 1, 1], [0, 4, 5, 4, 2, 5, 5, 5, 2]])
    (logits,) = session.run(None, {"tokens": tokens.numpy()})
    assert logits.shape == shape


def test_what_cannot_be_exported_is_refused_by_name_and_nothing_is_written(
    runtime, classifier, tmp_path, monkeypatch
):
    out = tmp_path / "out"
    out.mkdir()
    export = ("export", "onnx")
    refuses(["topic, tone", "--head"], *export, classifier, out / "a.onnx")
    refuses(["--head other", "topic, tone"], *export, classifier, out / "a.onnx", "--head", "other")
    refuses(["no folder", "absent"], *export, classifier, out / "absent" / "a.onnx")
    refuses(["is a directory"], *export, classifier, out, "--head", "lm")
    with monkeypatch.context() as patch:
        patch.setattr(onnx_export, "LIMIT", 1000)
        refuses(["GB of parameters"], *export, classifier, out / "a.onnx", "--head", "lm")
    # a runner with wrong outputs
    monkeypatch.setattr(onnx_export, "runner", lambda *_: lambda tokens: tokens.new_zeros(3, 3))
    verified = (*export, classifier, out / "a.onnx", "--head", "tone", "--verify")
    refuses(["largest difference from onnxruntime", "nothing was written"], *verified)
    assert list(out.iterdir()) == []


def test_flags_say_what_one_graph_cannot_serve():
    refused = {"attention": ("elu", "softmax"), "evaluation_positions": ("spread", "counted")}
    without = {"gau_chunk": 8, "funnel_stages": "1,1", "position_ids": "documents"}
    refused.update({name: (value, "models without it") for name, value in without.items()})
    settings = MASKED.complete({})
    refused = {name: value for name, value in refused.items() if name in settings}  # if installed
    onnx_export.refuse_untraceable("model.pt", settings)
    fields = dataclasses.fields(MASKED.family.dataclass)
    assert {each.name for each in fields if each.metadata.get("traceable")} == set(refused)
    for name, (value, known) in refused.items():
        words = f"{flag_of(name)} {value}, but .* ONNX.* only supports {known}; nothing"
        with pytest.raises(UsageError, match=words):
            onnx_export.refuse_untraceable("model.pt", {**settings, name: value})


def test_an_operation_without_counterpart_is_refused_with_the_encoding(runtime):
    class Complex(onnx_export.OneHead):
        def forward(self, tokens):
            return torch.polar(tokens.float(), tokens.float()).real

    exported = one_head(tiny("none", *ONE_LAYER), Complex)
    with pytest.raises(UsageError, match="model.pt: --position-encoding none .*polar"):
        onnx_export.record(exported, "model.pt")


ROTATIONS = [
    {},
    {"rotary_fraction": 0.5, "rotary_pairing": "half"},
    {"rotary_scaling": "yarn", "rotary_scaling_factor": 4.0, "rotary_value": True},
]


@pytest.mark.parametrize("flags", ROTATIONS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_real_rotation_is_the_complex_one(flags, dtype):
    rotation = encoding_of("rotary", heads=3, head_dim=16, **flags).transform
    positions = torch.tensor([[0, 1, 7, 100, 4095], [3, 2, 1, 0, 50]])
    vectors = [torch.randn(2, 5, 3, 16, dtype=dtype) for _ in range(3)]
    want = rotation(*vectors, rotation.table(positions))
    rotation.compiled = True
    table = rotation.table(positions)
    assert table.dtype is torch.float32
    tolerance = 1e-6 if dtype is torch.float32 else 2e-3  # about the precision of float16
    for got, expected in zip(rotation(*vectors, table), want):
        assert got.dtype is dtype
        torch.testing.assert_close(got, expected, atol=tolerance, rtol=tolerance)
