"""Architectures that a user registers, from a user-dir of their own."""

import pytest
from fairseq import models
from support.helpers import TINY, TranslationTask, model_settings
from support.own_extensions import registries_as_before

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.models import FAMILIES, family_of, register_preset

pytestmark = pytest.mark.properties


@pytest.fixture(autouse=True)
def gone_afterwards():
    with registries_as_before():
        yield


def test_a_preset_is_its_base_with_other_settings():
    register_preset("mine", "tupe_tiny", encoder_layers=3, dropout=0.25)
    family = family_of("mine")
    assert family is FAMILIES["posenc_transformer"]
    settings = model_settings("mine", "--decoder-layers", "1")
    model = models.build_model(settings, TranslationTask())
    assert model.encoder.encoding.name == model.decoder.encoding.name == "tupe"
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (3, 1)
    assert model.encoder.layers[0].dropout_module.p == 0.25
    assert family.presets["tupe_tiny"].get("encoder_layers") == 2


@pytest.mark.parametrize(
    "name, base, settings, words",
    [
        ("mine", "transformer", {}, "transformer is no architecture of the plug-in; .* list"),
        ("roformer_base", "tupe_base", {}, "preset roformer_base: .* exists already"),
        ("mine", "tupe_base", {"depth": 3}, "depth is no setting of posenc_transformer"),
    ],
)
def test_what_cannot_be_a_preset_is_refused(name, base, settings, words):
    with pytest.raises(UsageError, match=words):
        register_preset(name, base, **settings)


def test_architectures_of_fairseqs_decorator_belong_to_their_family():
    @models.register_model_architecture("posenc_transformer", "theirs")
    def theirs(args):
        args.position_encoding = getattr(args, "position_encoding", "alibi")

    assert family_of("theirs") is FAMILIES["posenc_transformer"]
    model = models.build_model(model_settings("theirs", *TINY), TranslationTask())
    assert model.encoder.encoding.name == "alibi"
