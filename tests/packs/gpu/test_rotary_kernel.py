"""The rotation in one kernel: by Triton's interpreter, on a GPU, and where it cannot be used."""

import importlib
import logging
import sys
from types import SimpleNamespace

import pytest
import torch
from support.parts import encoding_of

from fairseq_posenc.encodings import rotary
from fairseq_posenc.packs.gpu import rotary_choice

KERNEL = "fairseq_posenc.packs.gpu.rotary_kernel"
CPU = torch.device("cpu")
PAIRINGS = pytest.mark.parametrize("pairing", rotary.PAIRINGS)
#: half a unit in the last place of each type, and float32's error of a sum of two products
ROUNDING = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-22}
#: (B, T, H of queries, H of keys, D, d, whether each sequence has a table)
SHAPES = {
    "whole": (1, 5, 4, 4, 8, 8, False),
    "grouped, a fraction, odd sizes": (2, 3, 3, 1, 12, 6, False),
    "positions by sequence": (2, 3, 2, 2, 16, 12, True),
    "one token": (2, 1, 5, 5, 6, 2, True),
    "two groups of heads": (1, 2, 3, 2, 1024, 1024, False),
}
every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


@pytest.fixture(scope="module")
def kernel():
    """The file of the kernel, which Triton interprets."""
    pytest.importorskip("triton", reason="needs pip install triton")
    if torch.cuda.is_available():
        pytest.skip("the tests of a GPU run the kernel itself")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        patch.delitem(sys.modules, KERNEL, raising=False)
        yield importlib.import_module(KERNEL)
        sys.modules.pop(KERNEL)


def by_equation_26(x, table, pairing):
    """Pairs of x (B, T, H, D) times *table* (1|B, T, 1, d/2), in real numbers (RoFormer Eq. 26)."""
    d = 2 * table.size(-1)
    both = [slice(0, d, 2), slice(1, d, 2)]
    if pairing == "half":
        both = [slice(0, d // 2), slice(d // 2, d)]
    a, b = (x[..., each] for each in both)
    out = x.clone()
    out[..., both[0]] = a * table.real - b * table.imag
    out[..., both[1]] = a * table.imag + b * table.real
    return out


def given(shape, dtype, device=CPU):
    """A joint projection of queries and keys, and a table of complex numbers, not on a circle."""
    batch, length, heads, key_heads, size, dim, by_sequence = shape
    joint = torch.randn(batch, length, (heads + key_heads) * size + 3, device=device).to(dtype)
    angles = torch.rand(batch if by_sequence else 1, length, 1, dim // 2) * 100
    return joint, torch.polar(torch.rand_like(angles) + 0.5, angles).to(device)


def outputs_and_gradient(rotate, joint, shape):
    """Apply *rotate* to queries and keys, views of *joint*; the gradient of *joint* comes last."""
    _, _, heads, key_heads, size, *_ = shape
    joint = joint.detach().requires_grad_()
    views = joint[..., 3:].split((heads * size, key_heads * size), dim=-1)
    found = rotate([x.unflatten(-1, (-1, size)) for x in views])
    torch.manual_seed(1)
    # as attention computes them: gradients that are (B, H, T, D) in memory
    slopes = [torch.randint(-4, 5, x.transpose(1, 2).shape).to(x).transpose(1, 2) for x in found]
    return [x.detach() for x in (*found, *torch.autograd.grad(found, joint, slopes))]


def compare(rotate, shape, dtype, pairing, device=CPU, rounding=1.0):
    """Outputs and gradients against Eq. 26 in float64, and against PyTorch's operations.

    Args: *rounding*, the largest error of a rounding in half units in the last place.
    """
    joint, table = given(shape, dtype, device)
    dim, bound = 2 * table.size(-1), rounding * ROUNDING[dtype]

    def in_float64(pair):
        return [by_equation_26(x, table.to(torch.complex128), pairing) for x in pair]

    def by_pytorch(pair):
        rotated = rotary.Multiply.apply(table, pairing, *(x[..., :dim] for x in pair))
        return [torch.cat((r, x[..., dim:]), dim=-1) for r, x in zip(rotated, pair)]

    got = outputs_and_gradient(lambda pair: rotate(pair, table, pairing, dim), joint, shape)
    exact = outputs_and_gradient(in_float64, joint.double(), shape)
    other = outputs_and_gradient(by_pytorch, joint, shape)
    for mine, want, theirs in zip(got, exact, other):
        assert mine.dtype is theirs.dtype is dtype
        torch.testing.assert_close(mine.double(), want, rtol=1.01 * bound, atol=2e-6)
        torch.testing.assert_close(mine, theirs, rtol=2 * bound, atol=2e-6)


@every_shape
@PAIRINGS
@pytest.mark.parametrize("dtype", ROUNDING)
def test_outputs_and_gradients_by_the_interpreter(kernel, shape, pairing, dtype):
    # the interpreter does not round to bfloat16, but cuts bits off
    rounding = 2.0 if dtype is torch.bfloat16 else 1.0
    compare(kernel.rotate, shape, dtype, pairing, rounding=rounding)


@PAIRINGS
def test_channels_far_apart_in_memory_and_no_tokens(kernel, pairing):
    x = torch.randn(2, 8, 3, 2).half()
    table = torch.polar(torch.ones(1, 3, 1, 4), torch.rand(1, 3, 1, 4))
    (apart,) = kernel.rotate([x.permute(0, 2, 3, 1)], table, pairing, 8)
    (together,) = kernel.rotate([x.permute(0, 2, 3, 1).contiguous()], table, pairing, 8)
    assert torch.equal(apart, together) and apart.is_contiguous()
    for empty in (x.new_zeros(0, 3, 2, 8), x.new_zeros(2, 0, 2, 8)):
        got = kernel.rotate([empty, empty], table[:, : empty.size(1)], pairing, 8)
        assert [each.shape for each in got] == [empty.shape] * 2


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of products with NaN
def test_channels_without_a_position_keep_their_bits(kernel):
    values = [float("inf"), float("nan"), -0.0, 6e-8]
    x = torch.tensor([1.0, 2.0, *values]).half().view(1, 1, 1, 6)
    (got,) = kernel.rotate([x], torch.full((1, 1, 1, 1), 1j), "interleaved", 2)
    assert got[..., :2].tolist() == [[[[-2.0, 1.0]]]]
    assert torch.equal(got[..., 2:].view(torch.int16), x[..., 2:].view(torch.int16))


def test_a_gradient_has_a_gradient(kernel):
    """The rotation is linear: the derivative of its gradient by the slopes rotates again."""
    x, slopes, c = (torch.randn(1, 3, 2, 4, requires_grad=True) for _ in range(3))
    table = torch.polar(torch.ones(1, 3, 1, 2), torch.rand(1, 3, 1, 2))
    (out,) = kernel.rotate([x], table, "half", 4)
    (gradient,) = torch.autograd.grad(out, x, slopes, create_graph=True)
    (again,) = torch.autograd.grad((gradient * c).sum(), slopes)
    torch.testing.assert_close(again, by_equation_26(c, table, "half"))


# --- which kernel is taken


@pytest.fixture
def choose(monkeypatch, caplog):
    """The choice of a kernel, and the warnings, on a made-up GPU with a made-up Triton."""

    def call(capability=(8, 0), version=None, rotate=None):
        rotary_choice._kernel.cache_clear()
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some GPU")
        triton = version and SimpleNamespace(__version__=version, __spec__="found")
        monkeypatch.setitem(sys.modules, "triton", triton)
        monkeypatch.setitem(sys.modules, KERNEL, rotate and SimpleNamespace(rotate=rotate))
        with caplog.at_level(logging.WARNING, logger="fairseq_posenc"):
            found = [rotary_choice._kernel(CPU, torch.float16) for _ in range(2)]
        assert found[0] is found[1]
        return found[0], [record.getMessage() for record in caplog.records]

    yield call
    rotary_choice._kernel.cache_clear()


def by_pytorch(tensors, table, pairing, dim):
    return rotary.Multiply.forward(None, table, pairing, *tensors)


def unrotated(tensors, table, pairing, dim):
    return tensors


def broken(tensors, table, pairing, dim):
    raise RuntimeError("Internal PTX error\nptxas: sm_70 is not supported")


@pytest.mark.parametrize(
    "given, taken",
    [
        ({"version": "3.0.0", "rotate": by_pytorch}, True),
        ({"version": "3.0.0", "rotate": by_pytorch, "capability": (7, 0)}, True),
        ({"version": "3.9.0", "rotate": by_pytorch, "capability": (6, 1)}, False),
        ({"version": "2.1.0", "rotate": by_pytorch}, False),
        ({}, False),
    ],
)
def test_the_kernel_needs_a_gpu_and_a_triton_that_fit(choose, given, taken):
    kernel, warnings = choose(**given)
    assert kernel is (by_pytorch if taken else None) and not warnings


@pytest.mark.parametrize(
    "given, reason",
    [
        ({"rotate": broken}, "RuntimeError: Internal PTX error"),
        ({"rotate": unrotated}, "its results are wrong"),
        ({"rotate": None}, "ModuleNotFoundError: "),
    ],
)
def test_a_kernel_that_does_not_work_is_named_once(choose, given, reason):
    kernel, (warning,) = choose(version="3.9.0", **given)
    assert kernel is None and "\n" not in warning
    assert f"cannot be used on Some GPU in float16 ({reason}" in warning


def test_a_triton_that_cannot_be_imported_is_named(choose, monkeypatch, tmp_path, caplog):
    (tmp_path / "triton.py").write_text("raise OSError('libcuda.so.1')")
    choose()  # a GPU
    monkeypatch.delitem(sys.modules, "triton")
    monkeypatch.syspath_prepend(tmp_path)
    rotary_choice._kernel.cache_clear()
    assert rotary_choice._kernel(CPU, torch.float16) is None
    assert "OSError: libcuda.so.1" in caplog.text


def test_the_interpreted_kernel_passes_the_check(kernel):
    for dtype in rotary_choice.HALF_PRECISION:
        assert rotary_choice._is_right(kernel.rotate, CPU, dtype)


def test_only_plain_tensors_in_half_precision_have_a_kernel(monkeypatch):
    monkeypatch.setattr(rotary_choice, "_kernel", lambda device, dtype: by_pytorch)
    x = torch.zeros(1, 2, 3, 4)
    for dtype in rotary_choice.HALF_PRECISION:
        assert rotary_choice.kernel_for(x.to(dtype)) is by_pytorch
    others = [x, x.double(), torch.nn.Parameter(x.half())]
    assert [rotary_choice.kernel_for(other) for other in others] == [None] * 3
    torch.jit.trace(lambda y: y if rotary_choice.kernel_for(y) is None else None, x.half())


def test_a_kernel_rotates_all_channels_on_a_gpu_and_none_on_a_cpu(monkeypatch):
    calls = []

    monkeypatch.setattr(rotary, "FUSED", [lambda *given: calls.append(given) or given[0]])
    flags = {"rotary_fraction": 0.5, "rotary_pairing": "half"}
    rotation = encoding_of("rotary", **flags).transform
    table = rotation.table(torch.arange(3)[None])
    on_gpu = (SimpleNamespace(is_cuda=True),) * 2
    assert rotation.rotate_all(on_gpu, table) is on_gpu
    ((tensors, same, *rest),) = calls
    assert tensors is on_gpu and same is table and rest == ["half", 4]
    rotation.rotate_all((torch.randn(1, 3, 2, 8).half(),) * 2, table)
    assert len(calls) == 1


@pytest.mark.gpu
@every_shape
@PAIRINGS
@pytest.mark.parametrize("dtype", rotary_choice.HALF_PRECISION)
def test_on_a_gpu_the_kernel_is_taken_and_right(monkeypatch, shape, pairing, dtype):
    pytest.importorskip("triton", reason="needs pip install triton")
    if dtype is torch.bfloat16 and torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("this GPU has no bfloat16")
    calls, device = [], torch.device("cuda", torch.cuda.current_device())
    size, dim = shape[4:6]
    flags = {"rotary_fraction": dim / size, "rotary_pairing": pairing}
    rotation = encoding_of("rotary", head_dim=size, **flags).transform

    def rotated(*given):
        calls.append(rotary_choice.rotated(*given))
        return calls[-1]

    def rotate(pair, table, *_):
        return rotation.rotate_all(tuple(pair), table)

    monkeypatch.setattr(rotary, "FUSED", [rotated])
    compare(rotate, shape, dtype, pairing, device)
    assert len(calls) == 1 and calls[0] is not None
