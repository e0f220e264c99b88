"""What an export refuses follows from the roles of settings, also of flags registered later."""

import dataclasses
from argparse import Namespace
from dataclasses import dataclass
from typing import Optional

import pytest
import torch
from support.conversion import convert, load, refuses
from support.foreign_models import SOURCES, trained
from support.own_extensions import registries_as_before

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.checkpoints.reading import read_checkpoint
from fairseq_posenc.configuration.effect import has_effect
from fairseq_posenc.configuration.fields import computing_fields
from fairseq_posenc.encodings import register_encoding
from fairseq_posenc.encodings.base import SharedBias
from fairseq_posenc.exchange import native
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.formats import FORMATS
from fairseq_posenc.exchange.huggingface.entries import entries_of
from fairseq_posenc.exchange.huggingface.roformer import ROFORMER
from fairseq_posenc.flags.settings import setting
from fairseq_posenc.layers import norms
from fairseq_posenc.layers.norms import register_norm
from fairseq_posenc.models.masked_lm import MASKED_LM

FIELDS = {field.name: field for field in dataclasses.fields(MASKED_LM.dataclass)}
COMPUTING = {field.name for field in computing_fields(MASKED_LM.dataclass, Namespace())}
# given back by entries of config.json, or, the first, by tie_word_embeddings
WRITTEN = {"untie_weights_roberta", "encoder_layers", "encoder_embed_dim", "encoder_input_dim"}
WRITTEN |= {"encoder_ffn_embed_dim", "encoder_attention_heads", "layer_norm_eps", "causal"}
WRITTEN |= {"rotary_value"}
# written in another form, or without effect
ADAPTED = {"rotary_pairing", "num_segments", "segments", "activation_fn", "num_positions"}
ADAPTED |= {"rotary_scaling_factor", "rotary_original_length"}
# settings of heads that a masked language model of transformers does not have
HEADS = {"pooler_activation_fn", "spectral_norm_classification_head", "pooler", "pooler_norm"}
KEPT = WRITTEN | HEADS | ADAPTED
MASKED_ROFORMER = ROFORMER.architectures["RoFormerForMaskedLM"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    path = trained(tmp_path_factory.mktemp("settings") / "ours")
    return native.read_native(str(path), None)


def other_value(name, value):
    """Another value of a setting than *value*."""
    choices = FIELDS[name].metadata.get("choices")
    if choices is not None:
        return next(choice for choice in choices if choice != value)
    if isinstance(value, bool) or value is None:
        return not value
    return f"other {value}" if isinstance(value, str) else value * 2 or 1


@pytest.mark.parametrize("name", sorted(COMPUTING - KEPT))
def test_what_config_json_cannot_say_is_refused(checkpoint, tmp_path, name):
    value = other_value(name, checkpoint.settings[name])
    changed = checkpoint._replace(settings={**checkpoint.settings, name: value})
    if not has_effect(name, changed.settings, MASKED_LM.dataclass):
        return  # an option of an attention or an encoding that the model does not have
    with pytest.raises(UsageError, match=f"was trained with {flag_of(name)} {value}"):
        FORMATS["hf-roformer"].exporter.write(changed, None, str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", sorted(WRITTEN - {"untie_weights_roberta"}))
def test_what_config_json_says_comes_back(checkpoint, name):
    value = other_value(name, checkpoint.settings[name])
    settings = {**checkpoint.settings, name: value}
    entries = entries_of(ROFORMER, MASKED_ROFORMER, settings, checkpoint.path)
    read = {entry.theirs: entry.settings for entry in ROFORMER.entries if name in entry.ours}
    (settings,) = (read(Config("config.json", entries), {}) for read in read.values())
    assert settings[name] == value


def test_every_setting_is_of_one_kind():
    assert KEPT <= COMPUTING | ADAPTED
    assert not WRITTEN & (ADAPTED | HEADS)


@dataclass
class GainFlags:
    """Flags of the two below."""

    own_gain: Optional[float] = setting(1.0, "a factor", role="model")
    own_seed: Optional[int] = setting(0, "random", role="training")


class GainNorm(norms.LayerNorm):
    """A norm with flags of its own."""


class Constant(SharedBias):
    """An encoding with flags of its own."""


@pytest.fixture(params=["norm", "position_encoding"])
def own(request):
    """A norm or an encoding with flags of its own, registered while the test runs."""
    with registries_as_before():
        if request.param == "norm":
            register_norm("own_gain_norm", paper="", summary="", flags=GainFlags)(GainNorm)
            yield {"norm": "own_gain_norm"}
        else:
            register_encoding("own_constant", paper="", summary="", flags=GainFlags)(Constant)
            yield {"position_encoding": "rotary+own_constant"}


def changed(path, **settings):
    """A checkpoint with other settings, which a command line may refuse."""
    state = read_checkpoint(path)
    state["cfg"]["model"].update(settings)
    torch.save(state, path)
    return path


def test_what_is_registered_later_is_refused(own, tmp_path):
    (name, value) = next(iter(own.items()))
    checkpoint = changed(trained(tmp_path / "chosen", **own), own_gain=2.0)
    words = [f"{flag_of(name)} {value}", "--own-gain 2.0", "only supports", "1.0"]
    refuses(words, "export", "hf-roformer", checkpoint, tmp_path / "out")


def test_settings_of_training_do_not_matter(own, tmp_path):
    pytest.importorskip("safetensors", reason="exporting needs the package")
    settings = {"dropout": 0.3, "init_weights": "truncated_normal"}
    checkpoint = changed(trained(tmp_path / "ours", **settings), own_seed=3)
    convert("export", "hf-roformer", checkpoint, tmp_path / "out")
    assert (tmp_path / "out" / "config.json").exists()


def test_former_names_are_exported_and_never_printed(tmp_path):
    """A checkpoint from before a renaming, and the flags that are printed after an import."""
    path = changed(trained(tmp_path / "ours", norm="rms"), norm="unit", init_weights="usual")
    refuses(["--norm rms", "only supports layer"], "export", "hf-roformer", path, tmp_path / "out")
    former = [name for name, field in FIELDS.items() if field.metadata.get("role") == "former"]
    assert {"shaw_distance", "deberta_distance"} <= set(former)
    settings = {**dict.fromkeys(former, 3), "shaw_max_distance": 4, "own_setting": 1}
    assert native.flags_of(settings) == "--arch posenc_masked_lm --shaw-max-distance 4"


@pytest.mark.parametrize("format", ["roformer-v2", "gau-alpha"])
def test_imported_settings_have_names_of_today(tmp_path, format):
    convert("import", format, SOURCES[format](tmp_path / "source"), tmp_path / "out")
    settings = read_checkpoint(tmp_path / "out" / "checkpoint.pt")["cfg"]["model"]
    assert (settings["norm"], settings["init_weights"]) == ("rms", "truncated_normal")
    given = {name for name, value in settings.items() if value is not None}
    assert not given & {"shaw_distance", "deberta_distance"}
    model, _ = load(tmp_path / "out")
    assert model.args.norm == "rms"
