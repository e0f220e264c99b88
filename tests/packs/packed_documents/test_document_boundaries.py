"""--document-mask: where documents end, how they are grouped, and what is refused."""

import itertools
import logging
from argparse import Namespace

import numpy as np
import pytest
import torch
from fairseq.tasks import FairseqTask
from support.causal_language_models import tiny as language_model
from support.helpers import PAD, VOCABULARY
from support.masked_language_models import masked_batch

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.inherit import inherited_flags
from fairseq_posenc.configuration.features import Completed
from fairseq_posenc.configuration.fields import defaults_of
from fairseq_posenc.models.masked_lm import MASKED_LM, MODEL
from fairseq_posenc.models.segments import PATIENCE
from fairseq_posenc.packs.packed_documents import documents as taking_apart
from fairseq_posenc.packs.packed_documents.documents import group_sizes
from fairseq_posenc.packs.packed_documents.stacks import check_documents
from tests.packs.packed_documents.test_documents import EOS, MASK, documents, masked_model, packed

pytestmark = pytest.mark.properties
MARK = VOCABULARY.index("w50")


@pytest.mark.parametrize(
    "make, ends", [(language_model, [0, 5, 6, 9, 12]), (masked_model, [0, 6, 7, 10, 13])]
)
def test_documents_may_end_at_empty_lines_and_other_marks(make, ends):
    model = make("rotary", MASK, "--position-separators", "</s></s> w50")
    stack = model.decoder if make is language_model else model.encoder.sentence_encoder
    tokens = torch.tensor([[9, EOS, 8, 7, EOS, EOS, EOS, 6, EOS, EOS, 5, EOS, MARK, 4, PAD]])
    assert stack.documents.begins(tokens)[0].nonzero().flatten().tolist() == ends


def test_masks_and_random_tokens_change_no_document():
    """A masked </s> ends a document all the same, and a random one does not."""
    tokens = packed(VOCABULARY.bos())
    asked = tokens.eq(EOS)
    asked[0, 2] = True
    sample = masked_batch(tokens, asked)
    sample["net_input"]["src_tokens"][0, 2] = EOS
    model = masked_model("rotary", MASK)
    FairseqTask.valid_step(None, sample, model, lambda model, sample: (0, 0, {}))
    documents_in = model.encoder.sentence_encoder.documents
    starts = documents_in.begins(sample["net_input"]["original"])
    expected = sorted((row, start) for row, start, _ in documents(tokens, causal=False))
    assert starts.nonzero().tolist() == [list(each) for each in expected]


def test_group_sizes_cost_the_least_of_all_divisions():
    draw = np.random.default_rng(1)
    for _ in range(40):
        lengths = np.sort(draw.integers(1, 40, draw.integers(1, 9)))[::-1]
        cost = int(draw.integers(1, 60))

        def total(sizes, lengths=lengths, cost=cost):
            starts = np.cumsum([0, *sizes[:-1]])
            return sum(cost + int(lengths[start]) * size for start, size in zip(starts, sizes))

        others = itertools.product([False, True], repeat=len(lengths) - 1)
        divisions = (
            np.diff([0, *(i + 1 for i, cut in enumerate(cuts) if cut), len(lengths)])
            for cuts in others
        )
        sizes = group_sizes(lengths, cost)
        assert sum(sizes) == len(lengths)
        assert total(sizes) == min(total(each.tolist()) for each in divisions)


def test_training_without_a_boundary_says_so_once(caplog):
    model = language_model("rotary", MASK).train()
    with caplog.at_level(logging.WARNING):
        for _ in range(2 * PATIENCE):
            model(packed()[:, 7:9])
    found = [record.message for record in caplog.records if MASK in record.message]
    assert len(found) == 1 and "--position-separators" in found[0]


@pytest.mark.parametrize("task", ["sentence_prediction", "sentence_ranking"])
def test_fine_tuning_neither_inherits_nor_takes_the_flag(task):
    family, cfg, settings = MASKED_LM.dataclass, Namespace(document_mask=True), Namespace(task=task)
    assert "document_mask" not in inherited_flags(family, Namespace(**defaults_of(family)))
    with pytest.raises(UsageError, match=f"{MASK}: the samples of --task {task} are not packed"):
        check_documents(Completed(cfg, MODEL, [], settings, fresh=True, patterns={}))


def test_fully_sharded_layers_are_refused(monkeypatch):
    """Processes would apply a layer as often as they have groups, and wait for each other."""
    monkeypatch.setattr(taking_apart, "FullyShardedDataParallel", torch.nn.Module)
    with pytest.raises(UsageError, match=f"{MASK}: cannot be combined with --ddp-backend fully_sh"):
        language_model.__wrapped__("rotary", MASK)
