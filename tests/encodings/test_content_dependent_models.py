"""Shaw, Transformer-XL, DeBERTa in models: decoding, memory, composition, parameters, flags."""

import pytest
import torch
from support.content_dependent import NAMES
from support.helpers import (
    PAD,
    TINY,
    build,
    encoding_of,
    parameters_of,
    sentences,
    tiny,
    without_values,
)
from support.masked_language_models import count
from test_properties import decode_in_steps

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.encodings.base import Content
from fairseq_posenc.stacks import positions

# --- decoding, memory, composition


@torch.no_grad()
@pytest.mark.parametrize("name", ["transformer_xl", "deberta"])
def test_decoding_projects_distances_when_their_number_doubles_only(name, monkeypatch):
    model, calls = tiny(name, "--decoder-layers", "1"), []
    kind = ENCODINGS[name].content
    plain = kind.project
    source, target = sentences(2, 5), sentences(2, 20, seed=1)
    model.encoder(source)
    monkeypatch.setattr(kind, "project", lambda *a: calls.append(len(a[1])) or plain(*a))
    decode_in_steps(model, source, target, [3] + [1] * 17)
    assert calls[2:] == [5, 7, 15, 31, 63]  # after the encoder's two layers


@pytest.mark.skipif(not hasattr(torch.Tensor, "untyped_storage"), reason="PyTorch before 2.0")
@pytest.mark.parametrize("name", NAMES)
def test_memory_grows_with_pairs_of_tokens_not_with_pairs_times_channels(name):
    encoding, length = encoding_of(name, heads=2, head_dim=16), 64
    terms = encoding.build_content_bias()
    q, k = (torch.randn(3, 2, length, 16, requires_grad=True) for _ in "qk")
    sizes = []

    def note(tensor):
        sizes.append(tensor.untyped_storage().nbytes() // tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        vectors = encoding.distance_vectors(length, length, q)
        out = terms(Content(None, q, k, 1.0, None, None), vectors, {})
    assert out.shape == (3, 2, length, length)
    assert sizes and max(sizes) <= 2 * out.numel()


PAIRS = [f"{a}+{b}" for a in NAMES for b in sorted(ENCODINGS) if a < b or b not in NAMES]


@torch.no_grad()
@pytest.mark.parametrize("name", PAIRS)
def test_every_pair_is_refused_by_name_or_works(name):
    """Cached decoding of several tokens at once and left-padded sources change nothing."""
    if "none" in name:
        with pytest.raises(UsageError, match="none cannot be combined"):
            tiny(name)
        return
    model = tiny(name)
    source, target = sentences(1, 6), sentences(1, 7, seed=1)
    full, _ = model(source, None, target)
    padded = torch.cat((torch.full((1, 3), PAD), source), dim=1)
    steps = decode_in_steps(model, padded, target, [3, 1, 2, 1])
    torch.testing.assert_close(steps, full, atol=1e-5, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("name", ["rotary+shaw", "rotary+transformer_xl", "rotary+deberta"])
def test_with_rotary_they_stay_relative(name, monkeypatch):
    """Terms made of turned queries would see absolute positions."""
    model, source, target = tiny(name), sentences(2, 7), sentences(2, 6, seed=1)
    assert model.encoder.encoding.relative
    before, _ = model(source, None, target)
    plain = positions.count_positions
    monkeypatch.setattr(positions, "count_positions", lambda *a: plain(*a) + 77)
    torch.testing.assert_close(model(source, None, target)[0], before, atol=2e-5, rtol=0)


# --- parameters and flags


def test_deberta_has_one_table_a_stack_and_projections_in_every_layer():
    state = tiny("deberta", "--deberta-max-distance", "9").state_dict()
    tables = {key: value.shape for key, value in state.items() if "table" in key}
    assert tables == {
        f"{side}.position_vectors.deberta.table.weight": (18, 32) for side in ("encoder", "decoder")
    }
    for side in ("encoder", "decoder"):
        for layer in (0, 1):
            for projection in ("q_proj", "k_proj"):
                key = f"{side}.layers.{layer}.self_attn.position_terms.deberta.{projection}.weight"
                assert state[key].shape == (32, 32)


@pytest.mark.parametrize(
    "name, added",
    [
        ("shaw", 12 * 33 * 64),
        ("transformer_xl", 12 * (768 * 768 + 2 * 768)),
        ("deberta", 12 * 2 * 768 * 768 + 1024 * 768),
    ],
)
def test_parameters_of_the_masked_lm_presets(name, added):
    ours, without = (count(f"{each}_masked_lm_base", 100) for each in (name, "roformer"))
    assert ours - without == added


def test_shaw_base_is_the_transformer_base_with_keys_and_values_clipped_at_16():
    with without_values():
        model = build("shaw_base")
    shapes = {k: tuple(p.shape) for k, p in parameters_of(model).items() if "shaw" in k}
    assert len(shapes) == 2 * 12
    for key, shape in shapes.items():
        assert shape == ((33, 64) if key.startswith("encoder") else (17, 64))
    assert model.encoder.layers[0].fc1.weight.shape == (2048, 512)


@pytest.mark.parametrize(
    "flags, words",
    [
        (["shaw", "--shaw-max-distance", "0"], "--shaw-max-distance 0: must be at least 1"),
        (["deberta", "--deberta-max-distance", "0"], "--deberta-max-distance 0: .* at least 1"),
        (["transformer_xl", "--layer", "gated", "--gau-key-size", "7"], "7 channels .* even"),
        (["learned+deberta", "--layer", "gated", "--gau-normaliser", "scaled_squared_relu"],
         "--gau-normaliser scaled_squared_relu: .* deberta; give softmax_plus or softmax"),
        (["shaw", "--shaw-values", "--layer", "gated"], "--shaw-values: the values and keys"),
        (["shaw+shaw"], "named twice"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_by_name(flags, words):
    with pytest.raises(UsageError, match=words) as error:
        build("posenc_transformer", *TINY, "--position-encoding", *flags)
    assert "\n" not in str(error.value)
