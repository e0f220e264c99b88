"""Every kind of preset and every part: trained for an update, saved, loaded and validated."""

import pytest
from support.commands import SMALL, read, train, validate
from support.helpers import LINEAR, ROTATING, SIZES, encoding_of_sides, kinds
from support.masked_lm_runs import pretrain
from support.toy_lm import TASK, train_lm

from fairseq_posenc.attention import ATTENTIONS
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.layers.feed_forward import FEED_FORWARDS
from fairseq_posenc.layers.norms import NORMS
from fairseq_posenc.models.presets import LANGUAGE_MODEL, MASKED_LM, TRANSLATION

pytest_plugins = ["support.toy", "support.toy_lm", "support.masked_lm_runs"]
pytestmark = pytest.mark.properties

#: What presets need at the sizes of these tests: layers for their patterns, fewer heads.
OWN_FLAGS = {
    "roformer_align": ["--alignment-layer", "1"],
    "modernbert_masked_lm_tiny": ["--encoder-layers", "3"],
    "modernbert_masked_lm_base": ["--encoder-layers", "3"],
    "rnope_swa_lm": ["--decoder-layers", "4"],
    "llama_lm_small": ["--kv-heads", "1"],
}
#: encodings that a preset of translation has and nothing else
_PRESET = [
    preset["position_encoding"]
    for preset in (TRANSLATION[name] for name in kinds(TRANSLATION))
    if all(key == "position_encoding" or key.endswith(SIZES) for key in preset)
]
_OTHERS = [name for name in ENCODINGS if name not in _PRESET]


def _encodings_of(attention):
    """Encodings to train an attention with: with features that rotate, and without."""
    if attention in LINEAR:
        return ("sinusoidal", "rotary") if attention in ROTATING else ("none",)
    return ("rotary",)


#: Flags of a translation model with each part that is registered.
PARTS = [
    *(encoding_of_sides(name) for name in [*_OTHERS, "learned+rotary", "sinusoidal+rotary"]),
    *(
        ["--position-encoding", encoding, "--attention", name]
        for name, entry in ATTENTIONS.items()
        if name != "softmax" and not entry.thing.bidirectional_only
        for encoding in _encodings_of(name)
    ),
    *(["--position-encoding", "rotary", "--norm", name] for name in NORMS if name != "layer"),
    # the other gates differ from glu in their activation alone
    *(["--position-encoding", "rotary", "--feed-forward", name] for name in ("glu",)),
    *(
        ["--position-encoding", "rotary", *words.split()]
        for words in ("--rotary-fraction 0.5", "--rotary-pairing half", "--rotary-base 50.0")
    ),
]
assert {"mlp", "glu", "swiglu", "geglu"} >= set(FEED_FORWARDS)
ONE_UPDATE = ["--max-update", "1"]


def check_loaded(data, folder, logged, *task):
    """Validating the saved model gives the loss that training logged."""
    found = validate(data, folder / "checkpoint_last.pt", "--max-tokens", "160", *task)
    (entry,) = found.entries("valid")
    assert float(entry["valid_loss"]) == pytest.approx(logged.losses()["valid 1"], abs=2e-3)


@pytest.mark.parametrize("arch", kinds(TRANSLATION))
def test_a_translation_model(arch, toy, tmp_path):
    flags = ["--arch", arch, *SMALL, *OWN_FLAGS.get(arch, []), *ONE_UPDATE]
    check_loaded(toy.separate, tmp_path, train(toy.separate, tmp_path, *flags))


@pytest.mark.parametrize("flags", PARTS, ids=" ".join)
def test_a_part_of_a_translation_model(flags, toy, tmp_path):
    arch = ["--arch", "posenc_transformer", *SMALL, *ONE_UPDATE]
    check_loaded(toy.separate, tmp_path, train(toy.separate, tmp_path, *arch, *flags))
    parameters, settings = read(tmp_path / "checkpoint_last.pt")
    for flag, value in zip(flags[::2], flags[1::2]):
        assert str(settings[flag[2:].replace("-", "_")]) == value
    assert ("encoder.embed_positions.weight" in parameters) == ("learned" in flags[1])


@pytest.mark.parametrize("arch", kinds(MASKED_LM))
def test_a_masked_language_model(arch, corpora, tmp_path):
    logged = pretrain(corpora.text, tmp_path, arch, *OWN_FLAGS.get(arch, []), *ONE_UPDATE)
    check_loaded(corpora.text, tmp_path, logged, "--task", "masked_lm")
    _, settings = read(tmp_path / "checkpoint_last.pt")
    preset = MASKED_LM[arch]
    assert settings["position_encoding"] == preset["position_encoding"]
    assert settings["untie_cls"] == preset.get("untie_cls", False)


@pytest.mark.parametrize("arch", kinds(LANGUAGE_MODEL))
def test_a_language_model(arch, corpus, tmp_path):
    logged = train_lm(corpus, tmp_path, arch, *OWN_FLAGS.get(arch, []), *ONE_UPDATE)
    check_loaded(corpus, tmp_path, logged, *TASK, "--tokens-per-sample", "16")
