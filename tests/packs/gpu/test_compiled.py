"""``--compile-layers``: no graph breaks, the same outputs, few compilations, and refusals."""

import logging
from argparse import Namespace

import pytest
import torch
from support.conversion import convert
from support.expressed import trained
from support.helpers import EVERY_ENCODING, OTHER_LAYERS, PAD, build, sentences, tiny

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.versions import TORCH_VERSION
from fairseq_posenc.packs.gpu import compiled

pytestmark = [
    pytest.mark.properties,
    pytest.mark.skipif(TORCH_VERSION < (2, 4), reason="--compile-layers needs PyTorch 2.4"),
]
SLOW = pytest.mark.slow
ONE = ["--encoder-layers", "1", "--decoder-layers", "1"]
#: every encoding and every other kind of layer
ALL = [n if n == "rotary" else pytest.param(n, marks=SLOW) for n in EVERY_ENCODING + OTHER_LAYERS]
SOURCE, TARGET = sentences(3, 7), sentences(3, 12, seed=1)
SOURCE[1, 5:] = PAD


@pytest.fixture
def graphs(monkeypatch):
    """A list of the compiled graphs, which run without optimisation; graph breaks are errors."""
    found = []

    def backend(graph, inputs):
        found.append(graph)
        return graph.forward

    arguments = {"dynamic": True, "fullgraph": True, "backend": backend}
    monkeypatch.setattr(compiled, "ARGUMENTS", arguments)
    monkeypatch.setattr(compiled, "obstacle", lambda: None)
    torch._dynamo.reset()
    yield found
    torch._dynamo.reset()


def compiling(name):
    """A model that compiles its layers; copies of a model would not compile theirs."""
    return tiny.__wrapped__(name, *ONE, "--compile-layers")


def train(model):
    """Logits of a training step and the gradients of all parameters."""
    model.train()
    logits = model(SOURCE, None, TARGET[:, :6])[0]
    parameters = [p for p in model.parameters() if p.requires_grad]
    return logits, torch.autograd.grad(logits.logsumexp(-1).sum(), parameters, allow_unused=True)


@torch.no_grad()
def generate(model, after_step=lambda: None):
    """Logits of every step of incremental decoding."""
    model.eval()
    encoder_out, state = model.encoder(SOURCE, None), {}
    logits = []
    for length in range(1, TARGET.size(1) + 1):
        tokens = TARGET[:, :length]
        logits.append(model.decoder(tokens, encoder_out, incremental_state=state)[0])
        after_step()
    return torch.cat(logits, dim=1)


@pytest.mark.parametrize("name", ALL)
def test_no_graph_break_and_the_same_numbers(name, graphs):
    eager, layers = tiny(name, *ONE), compiling(name)
    assert list(layers.state_dict()) == list(eager.state_dict())
    layers.load_state_dict(eager.state_dict())
    (want, want_gradients), (got, gradients) = train(eager), train(layers)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    for one, other in zip(gradients, want_gradients):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    assert graphs  # some were compiled
    counts = []
    got = generate(layers, lambda: counts.append(len(graphs)))
    torch.testing.assert_close(got, generate(eager), rtol=1e-5, atol=1e-5)
    assert counts[-1] == counts[8]  # the last compilation is at token 9
    assert not [k for k in layers.state_dict() if "_orig_mod" in k]


@pytest.mark.slow
@pytest.mark.skipif(compiled.obstacle() is not None, reason=str(compiled.obstacle()))
@pytest.mark.parametrize("name", ["rotary", "favor:rotary"])
def test_compiled_to_code(name):
    torch._dynamo.reset()
    eager, layers = tiny(name, *ONE), compiling(name)
    layers.load_state_dict(eager.state_dict())
    torch.testing.assert_close(train(layers), train(eager), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(generate(layers), generate(eager), rtol=1e-5, atol=1e-5)


CAN = {"obstacle": lambda: None}
MISTAKES = [
    ({"TORCH_VERSION": (2, 3)}, [], "needs PyTorch 2.4"),
    ({"shutil.which": lambda name: None}, [], "needs a C\\+\\+ compiler"),
    (CAN, ["--checkpoint-activations"], ".* --checkpoint-activations"),
    ({**CAN, "FullyShardedDataParallel": torch.nn.Module}, [], ".* fully_sharded"),
]


@pytest.mark.parametrize("machine, flags, message", MISTAKES)
def test_what_cannot_be_compiled_is_refused_by_name(machine, flags, message, monkeypatch):
    for name, value in machine.items():
        monkeypatch.setattr(f"{compiled.__name__}.{name}", value)
    with pytest.raises(UsageError, match=f"--compile-layers: {message}"):
        build("roformer_tiny", "--compile-layers", *flags)


def test_a_checkpoint_loads_where_nothing_can_be_compiled(monkeypatch, caplog, tmp_path):
    monkeypatch.setattr(compiled, "obstacle", lambda: "no compiler")
    model = tiny("rotary")
    with caplog.at_level(logging.WARNING):
        compiled.compile_layers(model, Namespace(compile_layers=True))
    assert "not compiled" in caplog.text
    assert model.encoder.layers[0]._compiled_call_impl is None


def test_a_compiled_model_is_exported_without_the_flag(tmp_path, capsys):
    pytest.importorskip("onnxruntime", reason="the format needs it")
    path = trained(tmp_path / "ours", position_encoding="rotary", compile_layers=True)
    convert("export", "onnx", path, tmp_path / "model.onnx", "--verify")
    assert "--compile-layers: the exported model computes the same" in capsys.readouterr().out
