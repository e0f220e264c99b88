"""Training a part of a model: the other parameters stay as they are, bit for bit."""

import pytest
import torch
from fairseq.modules import MultiheadAttention
from support.causal_language_models import tiny as language_model
from support.helpers import (
    EVERY_ENCODING,
    TINY,
    build,
    causal_only,
    padded_batch,
)
from support.masked_language_models import tiny as masked_language_model

from fairseq_posenc.basics.errors import UsageError

#: Encodings without parameters: sinusoids, rotations and biases that are fixed.
FIXED = {"none", "nezha", "sinusoidal", "rotary", "xpos", "alibi", "sandwich", "sinusoidal+rotary"}


def model(encoding, *flags):
    sides = ["--encoder-position-encoding", "none"] if causal_only(encoding) else []
    return build("posenc_transformer", "--position-encoding", encoding, *sides, *TINY, *flags)


def names(found):
    return {name for name, parameter in found.named_parameters() if parameter.requires_grad}


def in_attention(found):
    """Names of the parameters of attentions, their layer norms included, by modules."""
    inside = set()
    for path, module in found.named_modules():
        if isinstance(module, MultiheadAttention) or path.endswith("attn_layer_norm"):
            inside |= {f"{path}.{name}" for name, _ in module.named_parameters()}
    return inside


@pytest.mark.parametrize("encoding", EVERY_ENCODING)
def test_parts_are_what_the_encoding_adds_and_what_attends(encoding):
    added = names(model(encoding)) - names(model("none"))
    assert bool(added) == (encoding not in FIXED)
    if added:
        assert names(model(encoding, "--train-only", "encoding")) == added
    else:
        with pytest.raises(UsageError, match="--train-only encoding: .* has no parameters"):
            model(encoding, "--train-only", "encoding")
    attending = model(encoding, "--train-only", "attention")
    assert names(attending) == added | in_attention(attending)


def test_other_families_have_the_same_parts():
    for found in (
        language_model("rotary", "--train-only", "attention"),
        masked_language_model("rotary", "--train-only", "attention"),
    ):
        assert names(found) == in_attention(found) != set()


@pytest.mark.parametrize("encoding", ["rotary", "none,t5"])
@pytest.mark.parametrize("flag", ["--checkpoint-activations", "--offload-activations"])
def test_recomputed_layers_above_frozen_embeddings_are_trained(encoding, flag):
    """fairseq's checkpoint gives no gradient to parameters if no tensor that it takes has one."""
    part = ("--train-only", "attention")
    plain, again = (language_model(encoding, *part, *more).train() for more in ([], [flag]))
    again.load_state_dict(plain.state_dict())
    for each in (plain, again):
        each(torch.tensor([[5, 6, 7, 8]]))[0].log_softmax(-1)[..., 5].mean().backward()
    found = dict(again.named_parameters())
    for name, parameter in plain.named_parameters():
        if parameter.requires_grad:
            torch.testing.assert_close(found[name].grad, parameter.grad)


@pytest.mark.parametrize("recomputed", [[], ["--checkpoint-activations"]], ids=["", "recomputed"])
def test_what_is_not_trained_stays_bit_for_bit(recomputed):
    torch.manual_seed(1)
    found = model("t5", "--train-only", "attention", *recomputed)
    before = {name: value.clone() for name, value in found.named_parameters()}
    source, target = padded_batch()
    optimizer = torch.optim.SGD([p for p in found.parameters() if p.requires_grad], lr=0.5)
    found(source, None, target)[0].log_softmax(-1)[..., 5].mean().neg().backward()
    optimizer.step()
    after = dict(found.named_parameters())
    changed = {name for name, value in before.items() if not torch.equal(value, after[name])}
    # a bias of the keys shifts all logits of a query alike
    assert {name for name in names(found) if not name.endswith("k_proj.bias")} <= changed
    assert changed <= names(found)


@pytest.mark.parametrize(
    "flags, words",
    [
        (
            ["--train-only", "attention", "--lora-rank", "2", "--lora-base", "x"],
            "drop one of the two",
        ),
        (["--train-only", "decoder"], "--train-only decoder: must be all or attention or encoding"),
        (["--train-only", "attention", "--layer", "gated"], "attention and feed-forward in one"),
    ],
)
def test_mistakes_are_one_line(flags, words):
    with pytest.raises(UsageError, match=words):
        model("rotary", *flags)
