"""Language models with random weights, built as fairseq-train builds them."""

from argparse import Namespace

from fairseq import models
from support.commands import shape
from support.helpers import LAYERS, VOCABULARY, copies, model_settings

from fairseq_posenc.models.language_model import MODEL

SMALL = [*shape(2, 32, 48, 4, "decoder"), "--dropout", "0"]


def task_of(vocabulary=VOCABULARY, **settings):
    args = Namespace(_name="language_modeling", **settings)
    return Namespace(source_dictionary=vocabulary, target_dictionary=vocabulary, args=args)


def build(arch, *flags, **settings):
    """A model of architecture *arch* in evaluation mode."""
    cfg = model_settings(arch, *flags, task="language_modeling")
    return models.build_model(cfg, task_of(**settings)).eval()


@copies
def tiny(name, *flags):
    """A two-layer model; *name* is ENCODING or LAYER:ENCODING."""
    layer, _, encoding = name.rpartition(":")
    flags = (*SMALL, *LAYERS[layer], *flags)
    return build(MODEL, "--position-encoding", encoding, *flags, "--tokens-per-sample", "64")
