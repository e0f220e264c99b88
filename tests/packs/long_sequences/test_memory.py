"""Segment-level recurrence: what a memory gives, what it costs no gradient, and who may have one.

Transformer-XL, Dai et al., arXiv 1901.02860, section 3.2.
"""

import golden
import pytest
import torch
from fairseq import models
from support.commands import shape
from support.helpers import EVERY_ENCODING, LAYERS, PAD, copies, model_settings, sentences
from support.masked_language_models import Vocabulary

from fairseq_posenc.encodings import parse_encodings
from fairseq_posenc.models.language_model import MODEL
from fairseq_posenc.packs.long_sequences.memory import moved_on
from tests.models.test_language_model import SMALL, task_of
from tests.packs.long_sequences.test_funnel import halves

pytestmark = pytest.mark.formulas
TASK = "language_modeling_with_memory"
B, T, SEGMENTS = 2, 5, 3
RELATIVE = [name for name in EVERY_ENCODING if all(e.relative for e in parse_encodings(name))]
RELATIVE += ["rotary+t5", "shaw_values:shaw", "scaled:rotary+cope", "power:kerple", "rotary,none"]


@copies
def tiny(name, *flags, memory=SEGMENTS * T):
    """A two-layer language model in float64 with memory; *name* is ENCODING or LAYER:ENCODING."""
    layer, _, encoding = name.rpartition(":")
    given = ["--position-encoding", encoding, *SMALL, *LAYERS[layer], *flags]
    given += ["--tokens-per-sample", "64", "--memory-length", str(memory)]
    cfg = model_settings(MODEL, *given, task=TASK)
    return models.build_model(cfg, task_of(**{"task": TASK})).eval().double()


def read(model, text, sizes):
    """Logits of *text* (B, S), read in segments of *sizes* tokens, and the memory at the end."""
    memory, logits = [], []
    for segment in text.split(sizes, dim=1):
        out, extra = model(segment, memory=memory)
        memory = extra["memory"]
        logits.append(out)
    return torch.cat(logits, dim=1), memory


NORMS = ("--no-decoder-final-norm", "--decoder-normalize-before")
FURTHER = [("transformer_xl", [1, 6, 8], flags) for flags in ((), NORMS)]


@pytest.mark.parametrize(
    "name, sizes, flags", [(name, [T] * SEGMENTS, ()) for name in RELATIVE] + FURTHER
)
@torch.no_grad()
def test_segments_with_all_their_past_as_memory_give_the_full_forward(name, sizes, flags):
    model, text = tiny(name, *flags), sentences(B, SEGMENTS * T)
    got, memory = read(model, text, sizes)
    torch.testing.assert_close(got, model(text)[0], atol=1e-9, rtol=0)
    assert [layer.shape for layer in memory] == [(B, SEGMENTS * T, 32)] * 2


def test_a_memory_takes_the_type_and_the_device_of_what_follows():
    """Memory of a checkpoint is on the CPU."""
    memory, inputs = [torch.zeros(1, 3, 2)], [torch.zeros(1, 2, 2, dtype=torch.half, device="meta")]
    (moved,) = moved_on(memory, inputs, length=4)
    assert (moved.shape, moved.dtype, moved.device.type) == ((1, 4, 2), torch.half, "meta")


def gradients(model, *arguments, **named):
    model.zero_grad()
    model(*arguments, **named)[0].pow(2).mean().backward()
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("name", ["rotary", "transformer_xl"])
def test_no_gradient_flows_into_the_memory(name):
    model, text = tiny(name).train(), sentences(B, 2 * T)
    first, second = text.split(T, dim=1)
    memory = model(first, memory=[])[1]["memory"]
    assert not any(layer.requires_grad for layer in memory)
    checkpointed = tiny(name, "--checkpoint-activations").train()
    checkpointed.load_state_dict(model.state_dict())
    found, again = (gradients(m, second, memory=memory) for m in (model, checkpointed))
    for a, b in zip(found, again):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-9)
    # the table of the embeddings learns nothing of tokens that only the first segment has; the
    # output layer has a table of its own
    table = model.decoder.embed_tokens.weight.grad
    only_first = sorted(set(first.flatten().tolist()) - set(second.flatten().tolist()))
    assert only_first and not table[only_first].any()
    assert table[second.flatten()].abs().sum(dim=-1).all()


@torch.no_grad()
def test_padding_at_the_end_of_a_stream_changes_no_other_token():
    model, text = tiny("t5"), sentences(B, T + 4)
    first, second = text.split([T, 4], dim=1)
    memory = model(first, memory=[])[1]["memory"]
    whole = model(second, memory=memory)[0]
    second = second.clone()
    second[1, 3:] = PAD
    padded = model(second, memory=memory)[0]
    assert torch.equal(padded[0], whole[0])
    torch.testing.assert_close(padded[1, :3], whole[1, :3], atol=1e-12, rtol=0)
    # on the left of a prompt: the tokens of the memory stay visible
    left = torch.cat((torch.full((B, 2), PAD), second[:, :3]), dim=1)
    shifted = model(left, memory=memory)[0][:, 2:]
    assert torch.isfinite(shifted).all()


@torch.no_grad()
def test_without_a_memory_nothing_is_returned_and_a_cache_excludes_one():
    model, text = tiny("rotary"), sentences(B, T)
    assert "memory" not in model(text)[1]
    with pytest.raises(ValueError, match="a cache holds all earlier tokens"):
        model(text, memory=[], incremental_state={})


def from_transformers(state):
    """The parameters of its two layers by our names; only the feed-forward has biases there."""
    found = {"embed_tokens.weight": state["word_emb.emb_layers.0.weight"]}
    for index in range(2):
        old, new = f"layers.{index}.dec_attn.", f"layers.{index}.self_attn."
        projections = [*state[f"{old}qkv_net.weight"].chunk(3), state[f"{old}o_net.weight"]]
        for name, weight in zip(("q_proj", "k_proj", "v_proj", "out_proj"), projections):
            found[f"{new}{name}.weight"] = weight
            found[f"{new}{name}.bias"] = torch.zeros(len(weight))
        terms = f"{new}position_terms.transformer_xl."
        found[f"{terms}proj.weight"] = halves(state[f"{old}r_net.weight"])
        found[f"{terms}u"] = state[f"{old}r_w_bias"].unsqueeze(1)
        found[f"{terms}v"] = state[f"{old}r_r_bias"].unsqueeze(1)
        rest = {"dec_attn.layer_norm": "self_attn_layer_norm", "pos_ff.CoreNet.0": "fc1"}
        rest.update({"pos_ff.CoreNet.3": "fc2", "pos_ff.layer_norm": "final_layer_norm"})
        for name, own in rest.items():
            for end in ("weight", "bias"):
                found[f"layers.{index}.{own}.{end}"] = state[f"layers.{index}.{name}.{end}"]
    return found


@torch.no_grad()
def test_states_of_segments_are_those_of_transformers():
    """The memory is shorter than the text before the last segment."""
    reference = golden.load("transfo_xl_memory")
    flags = ["--position-encoding", "transformer_xl", *shape(2, 16, 24, 2, "decoder")]
    flags += ["--dropout", "0", "--activation-fn", "relu"]
    flags += ["--memory-length", str(reference["config"]["mem_len"])]
    flags += ["--decoder-input-dim", "16", "--decoder-output-dim", "16"]
    cfg = model_settings(MODEL, *flags, task=TASK)
    model = models.build_model(cfg, task_of(Vocabulary([""] * 11), task=TASK)).eval()
    missing, unexpected = model.decoder.load_state_dict(
        from_transformers(reference["state_dict"]), strict=False
    )
    assert not unexpected and set(missing) <= {"version", "output_projection.weight"}
    model.decoder.padding_idx = -1  # its texts have no padding
    memory = []
    for key, tokens in reference["inputs"].items():
        states, extra = model(tokens, memory=memory, features_only=True)
        memory = extra["memory"]
        torch.testing.assert_close(states, reference["outputs"][key], atol=2e-5, rtol=1e-5)
