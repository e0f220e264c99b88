"""Properties that every position encoding must have.

The tests run for every registered encoding, for compositions, other layers and kernels, for
user-defined encodings, and for the rows of every ``properties.txt`` and ``language_models.txt``.
They thus cover an encoding as soon as it is registered, and a feature once it has a row.
"""

import copy
import functools
import shlex

import pytest
import torch
from support.causal_language_models import tiny as language_model
from support.commands import shape
from support.formulas import CONTENT
from support.helpers import (
    EVERY_ENCODING,
    LAYERS,
    OTHER_LAYERS,
    PAD,
    build,
    causal_only,
    decode_in_steps,
    sentences,
    skip_without_cpu_kernels,
)
from support.helpers import tiny as translation_model
from support.lists import rows_of
from support.own_extensions import files, registries_as_before

from fairseq_posenc.attention import Batch, Padding
from fairseq_posenc.attention.cache import BEAM
from fairseq_posenc.basics.versions import TORCH_VERSION
from fairseq_posenc.encodings import ENCODINGS, parse_encodings
from fairseq_posenc.stacks import positions

pytestmark = pytest.mark.properties

OWN = {}
with registries_as_before():  # the encodings of docs/adding.md that have no flags
    for _name in ("decay", "learned_rotary"):
        exec(compile(files()[f"mine/{_name}.py"], _name, "exec"), {"__name__": f"mine.{_name}"})
        OWN[_name] = ENCODINGS[_name]

NAMES = EVERY_ENCODING + OTHER_LAYERS + sorted(OWN)
NAMES += ["alibi+tupe+shaw+rotary"]
FEATURES, LANGUAGE_MODELS = [], rows_of("language_models.txt")
for _name, _flags, _encodings in [*rows_of("properties.txt"), *LANGUAGE_MODELS]:
    LAYERS[_name] = shlex.split(_flags)
    FEATURES += [f"{_name}:{encoding}" for encoding in _encodings.split()]
every_encoding = pytest.mark.parametrize("name", NAMES)
with_features = pytest.mark.parametrize("name", [*NAMES, *FEATURES])
B, T = 3, 9


@pytest.fixture(autouse=True)
def own_encodings(monkeypatch):
    for name, encoding in OWN.items():
        monkeypatch.setitem(ENCODINGS, name, encoding)


class WithoutSource(torch.nn.Module):
    """A language model that is called like a translation model."""

    encoder = staticmethod(lambda source: None)

    def __init__(self, model):
        super().__init__()
        self.decoder = model.decoder

    def forward(self, source, lengths, target):
        return self.decoder(target)


def tiny(name, *flags):
    """A model; *name* is ENCODING or, for other layers or a feature, LAYER:ENCODING."""
    if name.rpartition(":")[0] in [row[0] for row in LANGUAGE_MODELS]:
        return WithoutSource(language_model(name, *flags)).eval()
    return translation_model(name, *flags)


def no_grad(test):
    return torch.no_grad()(test)


def model_and_texts(name):
    return tiny(name), sentences(B, 7), sentences(B, T, seed=1)


@with_features
@pytest.mark.parametrize("steps, padded", [([1] * T, False), ([4] + [1] * 5, True)])
@no_grad
def test_cached_decoding_equals_the_full_forward(name, steps, padded):
    """Token by token, and after a prefix that is padded on the left."""
    model, source, target = model_and_texts(name)
    if padded:
        target[0, :3] = source[1, :2] = PAD
    full, _ = model(source, None, target)
    got, real = decode_in_steps(model, source, target, steps), target.ne(PAD)
    torch.testing.assert_close(got[real], full[real], atol=1e-5, rtol=0)


@with_features
@no_grad
def test_cached_decoding_survives_beam_reordering(name):
    """Hypotheses are swapped and copied between steps, as in beam search."""
    model, beam = tiny(name), 2
    source = sentences(B, 7).repeat_interleave(beam, dim=0)
    target = sentences(B * beam, 7, seed=1)
    encoder_out, state = model.encoder(source), {BEAM: beam}
    for step in range(1, 8):
        out, _ = model.decoder(target[:, :step], encoder_out=encoder_out, incremental_state=state)
        full, _ = model(source, None, target[:, :step])
        torch.testing.assert_close(out[:, -1], full[:, -1], atol=1e-5, rtol=0)
        # swap the hypotheses of sentence 1, keep those of 2, and take the first of 3 twice
        order = torch.tensor([1, 0, 2, 3, 4, 4])
        if step == 4:  # the first sentence is finished and leaves the batch
            order = order[2:]
            source = source[2:]
            if encoder_out is not None:
                encoder_out = model.encoder.reorder_encoder_out(encoder_out, order)
        elif step > 4:
            order = torch.tensor([1, 0, 3, 2])
        target = target[order]
        model.decoder.reorder_incremental_state_scripting(state, order)


@with_features
@no_grad
def test_padding_on_either_side_changes_nothing(name):
    """A sentence pair, padded left or right in a batch, has the same logits as alone."""
    model = tiny(name)
    source, target = sentences(1, 5), sentences(1, 6, seed=1)
    alone, _ = model(source, None, target)
    others, other_targets = sentences(2, 9, seed=2), sentences(2, 8, seed=3)
    source_gap, target_gap = torch.full((1, 4), PAD), torch.full((1, 2), PAD)
    for left in (True, False):  # pad sources on this side, and targets on the other
        row = torch.cat((source_gap, source) if left else (source, source_gap), dim=1)
        out_row = torch.cat((target, target_gap) if left else (target_gap, target), dim=1)
        padded, _ = model(torch.cat((others, row)), None, torch.cat((other_targets, out_row)))
        real = padded[-1, :-2] if left else padded[-1, 2:]
        torch.testing.assert_close(real, alone[0], atol=1e-5, rtol=0)


@every_encoding
@no_grad
def test_order_matters_to_the_encoder_unless_there_is_no_encoding(name):
    model, source = tiny(name), sentences(1, 8)
    order = torch.tensor([3, 1, 0, 2, 7, 6, 5, 4])
    out = model.encoder(source)["encoder_out"][0]
    permuted = model.encoder(source[:, order])["encoder_out"][0]
    same = torch.allclose(out[order], permuted, atol=1e-5)
    assert same == (name == "none")


@pytest.mark.parametrize("name", [*NAMES, *(f"rotary+{name}" for name in CONTENT)])
@no_grad
def test_relative_encodings_do_not_see_where_counting_starts(name, monkeypatch):
    model, source, target = model_and_texts(name)
    before, _ = model(source, None, target)
    encoding = model.encoder.encoding
    assert encoding.relative == all(e.relative for e in parse_encodings(name.rpartition(":")[2]))
    if not encoding.relative:
        return
    plain = positions.count_positions
    monkeypatch.setattr(positions, "count_positions", lambda *a: plain(*a) + 1000)
    after, _ = model(source, None, target)
    torch.testing.assert_close(after, before, atol=2e-5, rtol=0)


@every_encoding
@no_grad
def test_tables_of_relative_encodings_have_one_row_for_a_padded_batch(name):
    """Relative distances are differences of indices, which padding does not change."""
    side, mask = tiny(name).encoder, torch.zeros(B, T, dtype=torch.bool)
    mask[0, :2] = True
    x = torch.zeros(B, T, side.layers[0].embed_dim)
    prepared = side.prepare(Batch(x, T, Padding(mask, left=True)))
    for kernel in side.kernels():
        table = prepared[kernel.kind].get("table")
        if table is not None and kernel.encoding.relative:
            assert table.size(0) == 1


@with_features
def test_checkpointed_activations_give_the_same_gradients(name):
    plain, source, target = model_and_texts(name)
    checkpointed = tiny(name, "--checkpoint-activations")
    checkpointed.load_state_dict(plain.state_dict())
    source[0, :2] = PAD
    for model in (plain, checkpointed):
        model.train()
        model(source, None, target)[0].float().pow(2).mean().backward()
    for (key, a), (_, b) in zip(plain.named_parameters(), checkpointed.named_parameters()):
        assert a.grad is not None, key
        torch.testing.assert_close(a.grad, b.grad, atol=1e-6, rtol=1e-5, msg=key)


@every_encoding
@no_grad
def test_what_is_saved_and_loaded_or_copied_is_the_same_and_independent(name, tmp_path):
    """--store-ema and averaging rely on deep copies."""
    model, source, target = model_and_texts(name)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    loaded, twin = tiny(name), copy.deepcopy(model)
    safely = {"weights_only": True} if TORCH_VERSION >= (1, 13) else {}
    loaded.load_state_dict(torch.load(tmp_path / "model.pt", **safely))
    before = model(source, None, target)[0]
    assert torch.equal(loaded(source, None, target)[0], before)
    for parameter in model.parameters():
        parameter.add_(1.0)
    assert torch.equal(twin(source, None, target)[0], before)


@functools.lru_cache(maxsize=1)  # the tests of an encoding's dtypes run in succession
def _long_text(name, length):
    """A one-layer encoder, a function from an encoder to its outputs, and the float32 outputs.

    If only decoders can have the encoding, a decoder without a source replaces the encoder.
    """
    flags = ["--max-source-positions", "5000", "--max-target-positions", "5000"]
    flags += shape(1, 16, 48, 1)
    torch.manual_seed(0)
    model, tokens = tiny(name, *flags), sentences(1, length)
    if causal_only(name):
        side, read = model.decoder, lambda side: side(tokens, features_only=True)[0]
    else:
        side, read = model.encoder, lambda side: side(tokens)["encoder_out"][0]
    return side, read, read(side)


#: rounding changes a token's bucket; the pack's tests compare models with equal buckets
HASHED = tuple(name for name in NAMES if name.startswith("reformer:"))
#: text lengths: 1,024 tokens for sums of encodings, 4,096 for single ones (which DAPE makes slow)
LONG = [(name, 1024 if "+" in name else 4096) for name in NAMES if name not in HASHED]
LONG += [(f"{layer}:shaw", 4096) for layer in ("shaw_values", "shaw_per_head")]
HALF = [("dape", 1024, torch.float16, 0.02)]
for _name, _length in LONG:
    slow = [pytest.mark.slow] if _name == "dape" else []
    HALF.append(pytest.param(_name, _length, torch.float16, 0.02, marks=slow))
    HALF.append(pytest.param(_name, _length, torch.bfloat16, 0.12, marks=pytest.mark.slow))


@pytest.mark.parametrize("name, length, dtype, tolerance", HALF)
@no_grad
def test_half_precision_stays_near_float32(name, length, dtype, tolerance):
    """Limits the largest difference from the float32 output, whose values are of about 1."""
    skip_without_cpu_kernels(dtype)
    side, read, exact = _long_text(name, length)
    halved = read(copy.deepcopy(side).to(dtype))
    assert halved.dtype is dtype
    assert (halved.float() - exact).abs().max() < tolerance


@every_encoding
@pytest.mark.skipif(TORCH_VERSION < (2, 0), reason="CPU autocast is incomplete before PyTorch 2.0")
def test_mixed_precision_trains(name):
    """--amp: parameters in float32, arithmetic in half precision where PyTorch thinks it safe."""
    model, source, target = model_and_texts(name)
    model.train()
    source[0, :2] = PAD
    exact, _ = model(source, None, target)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed, _ = model(source, None, target)
    mixed.float().pow(2).mean().backward()
    assert (mixed.float() - exact).abs().max() < 0.15 or name in HASHED
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


@every_encoding
@no_grad
def test_sentences_of_nothing_but_padding_stay_finite(name):
    model, source, target = model_and_texts(name)
    source[0] = target[1] = PAD
    out, extra = model(source, None, target)
    assert torch.isfinite(out).all()
    attention = extra["attn"][0]  # cross-attention weights, which are returned in evaluation mode
    assert attention.shape == (B, T, 7)
    torch.testing.assert_close(attention[1:].sum(-1), torch.ones(B - 1, T))


@pytest.mark.parametrize(
    "arch, kinds",
    [
        ("roformer_tiny", "dropout attention-dropout activation-dropout"),
        ("performer_tiny", "attention-dropout"),
        ("gau_tiny", "attention-dropout"),
    ],
)
def test_dropout_of_every_kind_is_active_in_training_only(arch, kinds):
    none = {"dropout": 0, "attention-dropout": 0, "activation-dropout": 0}
    rates = {**none, **dict.fromkeys(kinds.split(), 0.2)}
    model = build(arch, *(f"--{name}={rate}" for name, rate in rates.items()))
    source, target = sentences(B, 7), sentences(B, T, seed=1)
    assert not torch.equal(model(source, None, target)[0], model(source, None, target)[0])
    model.eval()
    assert torch.equal(model(source, None, target)[0], model(source, None, target)[0])
