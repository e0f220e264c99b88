"""Position encodings, their flags, and what is not in stock, through fairseq's command lines."""

import pytest
from support.commands import SMALL, generate, pruned, read, train
from support.helpers import LINEAR, ROTATING, SIZES, encoding_of_sides, kinds

from fairseq_posenc.attention import ATTENTIONS
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.layers.feed_forward import FEED_FORWARDS
from fairseq_posenc.layers.norms import NORMS
from fairseq_posenc.models.presets import TRANSLATION as PRESETS

pytest_plugins = ["support.toy"]

GATED = ("swiglu", "geglu")  # glu with other activations
ROFORMER = ["--arch", "roformer_tiny", *SMALL]


@pytest.fixture(scope="module")
def plain(toy, tmp_path_factory):
    """Losses of the RoFormer without further flags."""
    return train(toy.joined, tmp_path_factory.mktemp("plain"), *ROFORMER).losses()


#: encodings that a preset has and nothing else: test_commands_translation goes further with it
PRESET = [
    preset["position_encoding"]
    for preset in (PRESETS[name] for name in kinds(PRESETS))
    if all(key == "position_encoding" or key.endswith(SIZES) for key in preset)
]
OTHERS = [name for name in ENCODINGS if name not in PRESET]


def encodings_of(attention):
    """Encodings to train an attention with: with features that rotate, and without."""
    if attention in LINEAR:
        return ("sinusoidal", "rotary") if attention in ROTATING else ("none",)
    return ("rotary",)


ROTARY = ["--position-encoding", "rotary"]
REGISTERED = [
    *(encoding_of_sides(name) for name in [*OTHERS, "learned+rotary", "sinusoidal+rotary"]),
    *(
        ["--position-encoding", encoding, "--attention", name]
        for name, entry in ATTENTIONS.items()
        if name != "softmax" and not entry.thing.bidirectional_only
        for encoding in encodings_of(name)
    ),
    *([*ROTARY, "--norm", name] for name in NORMS if name != "layer"),
    # gates differ in their activation alone
    *([*ROTARY, "--feed-forward", name] for name in FEED_FORWARDS if name not in ("mlp", *GATED)),
]


@pytest.mark.parametrize("flags", REGISTERED, ids=" ".join)
def test_what_is_registered_trains_and_generates(flags, toy, tmp_path):
    arch = ["--arch", "posenc_transformer", *SMALL]
    assert len(train(toy.separate, tmp_path, *arch, *flags).losses()) == 6
    parameters, settings = read(tmp_path / "checkpoint_last.pt")
    for flag, value in zip(flags[::2], flags[1::2]):
        assert settings[flag[2:].replace("-", "_")] == value
    assert ("encoder.embed_positions.weight" in parameters) == ("learned" in flags[1])
    found = generate(toy.separate, tmp_path / "checkpoint_last.pt").hypotheses()
    assert sorted(found) == list(range(24))


@pytest.mark.parametrize(
    "name, value", [("fraction", "0.5"), ("pairing", "half"), ("base", "50.0")]
)
def test_a_rotary_flag_changes_the_model_and_is_kept(name, value, toy, tmp_path, plain):
    losses = train(toy.joined, tmp_path, *ROFORMER, f"--rotary-{name}", value).losses()
    assert losses.keys() == plain.keys() and losses != plain
    _, settings = read(tmp_path / "checkpoint_last.pt")
    assert str(settings[f"rotary_{name}"]) == value
    assert len(generate(toy.joined, tmp_path / "checkpoint_last.pt").hypotheses()) == 24


@pytest.mark.parametrize("flag", ["--checkpoint-activations", "--offload-activations"])
def test_saving_memory_changes_no_loss(flag, toy, tmp_path, plain):
    assert train(toy.joined, tmp_path, *ROFORMER, flag).losses() == plain


def test_quantisation_noise_is_in_training_alone(toy, tmp_path, plain):
    noise = ["--quant-noise-pq", "0.5", "--quant-noise-pq-block-size", "4"]
    losses = train(toy.joined, tmp_path, *ROFORMER, *noise).losses()
    assert losses["update 1"] != plain["update 1"]
    found = [generate(toy.joined, tmp_path / "checkpoint_last.pt").hypotheses() for _ in range(2)]
    assert found[0] == found[1] and len(found[0]) == 24


@pytest.mark.gpu
def test_scalar_quantisation_noise(toy, tmp_path, plain):
    """fairseq moves its scales to CUDA, in stock models too."""
    losses = train(toy.joined, tmp_path, *ROFORMER, "--quant-noise-scalar", "0.5").losses()
    assert losses["update 1"] != plain["update 1"]


def test_keeping_some_layers_is_the_model_with_those_layers(toy, tmp_path):
    layers = ["--encoder-layers", "3", "--decoder-layers", "3"]
    drop = ["--encoder-layerdrop", "0.2", "--decoder-layerdrop", "0.2"]
    train(toy.separate, tmp_path, *ROFORMER, *layers, *drop)
    checkpoint, keep = tmp_path / "checkpoint_last.pt", {"encoder": [0, 2], "decoder": [1]}
    overrides = {f"{side}_layers_to_keep": ",".join(map(str, k)) for side, k in keep.items()}
    found = generate(toy.separate, checkpoint, "--model-overrides", str(overrides)).hypotheses()
    assert found == generate(toy.separate, pruned(checkpoint, keep)).hypotheses()
    assert found != generate(toy.separate, checkpoint).hypotheses()
