"""What the tests build their models from is what fairseq-train would work with."""

import pytest
from support.helpers import LAYERS, TINY, model_settings, parse


@pytest.mark.parametrize(
    "arch, task, flags",
    [
        ("posenc_transformer", "translation", [*TINY, "--position-encoding", "tupe+t5"]),
        ("posenc_transformer", "translation", [*LAYERS["gated"], "--checkpoint-activations"]),
        ("roformer_wmt_en_de", "translation", ["--quant-noise-pq", "0.1"]),
        ("posenc_masked_lm", "masked_lm", ["--encoder-layerdrop", "0.5"]),
        ("transformer_lm", "language_modeling", ["--adaptive-input-cutoff", "9,99"]),
    ],
)
def test_settings_of_a_model_are_those_of_the_whole_configuration(arch, task, flags):
    whole, settings = parse(arch, *flags, task=task).model, model_settings(arch, *flags, task=task)
    assert settings == whole and list(settings) == list(whole)
    assert [type(value) for value in settings.values()] == [type(v) for v in whole.values()]
