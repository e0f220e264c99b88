"""Masked language models with random weights, built as fairseq-train builds them."""

from argparse import Namespace
from unittest import mock

from fairseq import models
from support.commands import shape
from support.helpers import (
    PAD,
    VOCABULARY,
    copies,
    model_settings,
    own_criterion,
    sentences,
    without_values,
)

from fairseq_posenc.models import family_of

CLS = VOCABULARY.bos()
SMALL = [*shape(2, 32, 64, 4, "encoder"), "--dropout", "0", "--attention-dropout", "0"]


class Vocabulary(list):
    """The part of a dictionary that a model needs, with any number of symbols."""

    pad = staticmethod(lambda: PAD)
    eos = staticmethod(VOCABULARY.eos)
    __hash__ = object.__hash__


def build(arch, *flags, vocabulary=VOCABULARY, length=64, **settings):
    """A model of architecture *arch* in evaluation mode."""
    flags = ["--tokens-per-sample", str(length), *own_criterion(family_of(arch)), *flags]
    cfg = model_settings(arch, *flags, task="masked_lm")
    settings = Namespace(**{"_name": "masked_lm", "tokens_per_sample": length, **settings})
    return models.build_model(cfg, Namespace(source_dictionary=vocabulary, cfg=settings)).eval()


@copies
def tiny(encoding, *flags, **settings):
    flags = ["--position-encoding", encoding, *SMALL, *flags]
    return build("posenc_masked_lm", *flags, **settings)


def texts(batch=2, length=9):
    tokens = sentences(batch, length)
    tokens[:, 0] = CLS
    return tokens


def padded_texts(length, *others):
    """A text of *length* tokens, then a text of each length in *others*, padded right."""
    tokens = texts(1 + len(others), length)
    for row, end in enumerate(others, start=1):
        tokens[row, end:] = PAD
    return tokens


def masked_batch(tokens, asked, **more):
    """A training sample: texts (B, T) whose *asked* tokens are masked and to be predicted."""
    return {
        "net_input": {"src_tokens": tokens.masked_fill(asked, VOCABULARY.unk())},
        "target": tokens.masked_fill(~asked, PAD),
        "nsentences": len(tokens),
        "ntokens": tokens.numel(),
        **more,
    }


INITIALISED = ("fairseq.models.roberta.model", "fairseq_posenc.models.roberta")


def count(arch, vocabulary=30522):
    """The number of parameters of *arch* with 512 positions and, by default, BERT's vocabulary."""
    bert = [mock.patch(f"{name}.init_bert_params") for name in INITIALISED]
    with without_values(), bert[0], bert[1]:  # BERT's initialisation needs values
        model = build(arch, vocabulary=Vocabulary([""] * vocabulary), length=512)
    return sum(p.numel() for p in model.parameters())
