"""A user-defined kernel: every encoding works with it, or is refused by name."""

import pytest
import torch
from support.helpers import PAD, causal_only, decode_in_steps, sentences
from support.own_extensions import files, own_model, registries_as_before
from support.parts import attended_alone, kernel_of, places_of, slow_attention

from fairseq_posenc.attention import MultiheadKernel, register_attention
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings import ENCODINGS

pytestmark = pytest.mark.properties

every_encoding = pytest.mark.parametrize("name", sorted(ENCODINGS))
FILES = ("mine/cosine.py", "mine/scale.py", "mine/squared.py")
MINE = ("--attention", "cosine", "--norm", "scale", "--feed-forward", "squared_glu")
B, T = 3, 9


class Deaf(MultiheadKernel):
    """Uses neither positions nor masks, and declares support for neither."""

    def forward(self, x, incremental_state=None, **unused):
        return self.out_proj(self.v_proj(x))


@pytest.fixture(scope="module")
def mine():
    """Register the kernel, norm and feed-forward network of docs/adding.md, and :class:`Deaf`."""
    with registries_as_before():
        for path in FILES:
            exec(compile(files()[path], path, "exec"), {"__name__": path})
        register_attention("deaf", paper="", summary="")(Deaf)
        yield


def model_of(attention, name, *flags):
    side = ["--encoder-position-encoding", "none"] if causal_only(name) else []
    return own_model("--attention", attention, "--position-encoding", name, *side, *flags)


@every_encoding
def test_what_a_kernel_does_not_declare_is_refused_by_name(name, mine):
    if ENCODINGS[name].acts.hook == "input":
        model_of("deaf", name)
        return
    words = f"--attention deaf: --position-encoding {name} .*; give learned or sinusoidal or none"
    with pytest.raises(UsageError, match=words):
        model_of("deaf", name)


@every_encoding
@torch.no_grad()
def test_every_encoding_is_right_with_the_kernel_of_the_page_or_refused(name, mine):
    if ENCODINGS[name].content:
        with pytest.raises(UsageError, match=f"cosine: --position-encoding {name} adds to logits"):
            model_of(*MINE[1:2], name, *MINE[2:])
        return
    model = model_of(*MINE[1:2], name, *MINE[2:])
    source, target = sentences(B, 7), sentences(B, T, seed=1)
    full, _ = model(source, None, target)
    got = decode_in_steps(model, source, target, [1, 3, 1, 4])
    torch.testing.assert_close(got, full, atol=1e-5, rtol=0)
    gap = torch.full((B, 2), PAD)
    for padded in (torch.cat((source, gap), dim=1), torch.cat((gap, source), dim=1)):
        torch.testing.assert_close(model(padded, None, target)[0], full, atol=1e-5, rtol=0)


@torch.no_grad()
def test_the_kernel_of_the_page_is_its_formula(mine):
    layer, x = kernel_of("cosine", "rotary+t5", 2, 4).double(), torch.randn(B, T, 8).double()
    layer.gain.copy_(torch.tensor([2.0, 5.0]).view(2, 1, 1))
    encoding = layer.encoding
    table = encoding.transform.table(torch.arange(T)[None])
    bias = encoding.shared_bias(places_of(T)).double()
    q, k, v = (p(x).view(B, T, 2, 4) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
    q, k = (x / x.square().sum(-1, keepdim=True).sqrt() for x in (q, k))
    q, k, v = (x.transpose(1, 2) for x in encoding.transform(q, k, v, table))
    allowed = torch.ones(B, T, T, dtype=torch.bool)
    mixed = slow_attention(q * layer.gain, k, v, 1.0, allowed, bias.expand(B, -1, -1, -1))
    want = layer.out_proj(mixed.transpose(1, 2).reshape(B, T, 8))
    torch.testing.assert_close(attended_alone(layer, x), want, atol=1e-6, rtol=1e-6)
