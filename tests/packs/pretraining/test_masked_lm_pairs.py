"""--task masked_lm_pairs: what a sample is, its masks, and the order of batches."""

import functools
import itertools
import shutil
from argparse import Namespace

import numpy as np
import pytest
import torch
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from omegaconf import OmegaConf
from support.conversion import write_ids
from support.masked_language_models import tiny

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.resuming import check_same_kind
from fairseq_posenc.packs.pretraining import masked_lm_pairs, masked_samples
from tests.models.test_segments import PAIRS as READS_PAIRS
from tests.models.test_segments import by_hand, step_of
from tests.packs.pretraining.text_pairs import (
    CLS,
    DOCUMENT_OF,
    END,
    LINES,
    LONGEST,
    PAD,
    configured,
    originals,
    samples_of,
    task_of,
    whole,
)

pytest_plugins = ["tests.packs.pretraining.text_pairs"]
pytestmark = pytest.mark.properties

PAIRS = [("nsp", "segment"), ("nsp", "sentence"), ("sop", "segment"), ("sop", "sentence")]


@pytest.mark.parametrize("separator", [None, END])
@pytest.mark.parametrize("relation, unit", PAIRS)
def test_half_of_the_pairs_are_as_in_the_text(relation, unit, separator, data):
    task = task_of(data, pairs=relation, unit=unit, separator_token=separator)
    between = [END] if separator is None else [END, separator]
    room, cut, kinds = LONGEST - 2 - len(between), 0, []
    for epoch in (1, 2):
        samples, known = samples_of(task, epoch), task.dataset("train")
        for row, (*_, kind), size in zip(originals(samples), samples, known.sizes):
            kinds.append(kind)
            assert row[0] == CLS and row[-1] == END and len(row) == size <= LONGEST
            end = row.index(END)
            a, b = row[1:end], row[end + len(between) : -1]
            assert row[end : end + len(between)] == between and END not in b
            (a_first, a_last), (b_first, b_last) = ((x[0] - 4, x[-1] - 3) for x in (a, b))
            of_a, of_b = whole(a_first, a_last), whole(b_first, b_last)
            # cut at the outer ends alone, and only where something has to be
            assert of_a[len(of_a) - len(a) :] == a and of_b[: len(b)] == b
            if len(of_a) + len(of_b) > len(a) + len(b):
                cut += 1
                assert len(a) + len(b) == room
            if unit == "sentence":
                assert a_last - a_first == b_last - b_first == 1
            same = DOCUMENT_OF[a_first] == DOCUMENT_OF[b_first]
            if kind == 0:
                assert same and b_first == a_last
            elif relation == "sop":
                assert same and a_first == b_last
            else:
                assert not same
            for first, last in ((a_first, a_last), (b_first, b_last)):
                assert len({DOCUMENT_OF[line] for line in range(first, last)}) == 1
    assert abs(np.mean(kinds) - 0.5) < 2 / len(kinds) ** 0.5  # four standard deviations
    assert cut < 0.3 * len(kinds) and (cut > 0 or unit == "segment")


def test_other_segments_are_as_long_as_those_they_replace(data):
    samples, lengths = task_of(data, pairs="nsp").dataset("train"), ([], [])
    for epoch in range(1, 20):
        samples.set_epoch(epoch)
        for size, kind in zip(samples.sizes, samples.samples.relations):
            lengths[kind].append(size)
    assert np.mean(lengths[1]) == pytest.approx(np.mean(lengths[0]), rel=0.1)


def test_every_epoch_has_other_pairs_and_every_line_gets_its_turn(data):
    task = task_of(data, pairs="nsp", unit="sentence")
    first, second = originals(samples_of(task, 1)), originals(samples_of(task, 2))
    assert len(first) == len(second) and first != second
    begun = {row[1] - 4 for row in first}
    assert begun == {line for line in DOCUMENT_OF if line + 1 in DOCUMENT_OF}


def test_segments_are_those_of_the_unmasked_pairs(data):
    task = task_of(data, pairs="nsp", mask_prob=0.5)
    model, samples = tiny("rotary", *READS_PAIRS), samples_of(task, 1, 9)
    batch = task.dataset("train").collater([task.dataset("train")[n] for n in range(9)])
    expected = [by_hand(row) for row in originals(samples)]
    found = [row[: len(e)] for row, e in zip(step_of(task, model, batch).tolist(), expected)]
    assert found == expected and any(map(any, expected))


@pytest.mark.parametrize("mode", ["complete", "complete_doc"])
def test_running_text_is_that_of_fairseqs_masked_lm(mode, data):
    flags = {"sample_break_mode": mode, "mask_prob": 0.3}
    stock = MaskedLMTask.setup_task(configured(MaskedLMConfig(), data, **flags))
    stock.load_dataset("train")
    ours, theirs = task_of(data, **flags).dataset("train"), stock.dataset("train")
    assert ours.ordered_indices().tolist() == theirs.ordered_indices().tolist()
    for epoch in (1, 2):
        ours.set_epoch(epoch)
        theirs.set_epoch(epoch)
        numbers = range(epoch, len(ours), 7)
        one, other = (x.collater([x[n] for n in numbers]) for x in (ours, theirs))
        for key in ("src_tokens", "src_lengths"):
            assert torch.equal(one["net_input"][key], other["net_input"][key])
        assert torch.equal(one["target"], other["target"])
        assert all(one[key] == other[key] for key in ("ntokens", "nsentences"))


@pytest.mark.parametrize("masks", [0, 1, 3])
@pytest.mark.parametrize("masking", ["tokens", "spans"])
def test_static_masks_are_taken_in_turn_and_dynamic_ones_are_new(masks, masking, data):
    flags = {"pairs": "nsp"} if masking == "spans" else {"sample_break_mode": "complete"}
    task = task_of(data, static_masks=masks, masking=masking, **flags)
    epochs = [samples_of(task, epoch, 20) for epoch in range(1, 8)]
    for one, other in itertools.combinations(range(7), 2):
        equal = masks > 0 and (one - other) % masks == 0
        assert (epochs[one] == epochs[other]) == equal


def test_static_masks_count_readings_of_all_shards(data):
    """Three epochs read three folders once; the fourth reads the first again, with another mask."""
    task = task_of(":".join([str(data)] * 3), static_masks=3, sample_break_mode="complete")
    epochs = [samples_of(task, epoch, 20) for epoch in (1, 3, 4, 7, 10)]
    assert epochs[0] == epochs[1] == epochs[4] and epochs[0] != epochs[2] != epochs[3] != epochs[0]


def test_whole_words_are_masked(data, monkeypatch):
    begins = torch.arange(4 + len(LINES) + 1) % 2  # the second half of each pair of symbols
    begins[:4] = 1
    monkeypatch.setattr(masked_samples, "get_whole_word_mask", lambda *_: begins)
    monkeypatch.setattr(masked_lm_pairs, "bpe_flags", lambda _: "gpt2")
    samples = samples_of(task_of(data, pairs="nsp", mask_whole_words=True, mask_prob=0.3), 1, 50)
    for (_, target, _), row in zip(samples, originals(samples)):
        for position in range(1, len(row)):
            if not begins[row[position]] and row[position - 1] not in (CLS, END):
                assert (target[position] == PAD) == (target[position - 1] == PAD)


@pytest.mark.parametrize("masking", ["tokens", "spans"])
@pytest.mark.parametrize("separator", [None, END, 9])
def test_in_pairs_special_tokens_are_masked_only_if_a_flag_asks_for_it(masking, separator, data):
    """The relation is read from [CLS]; the words are masked as without sparing the others."""
    flags = {"pairs": "sop", "masking": masking, "mask_prob": 0.3, "separator_token": separator}
    task = task_of(data, **flags)
    samples = samples_of(task)
    pairs = task.dataset("train").samples
    special, words = set(), []
    for number, (source, target, _) in enumerate(samples):
        whole, first = pairs[number].tolist(), int(pairs.tokens_a[number]) + 1
        places = {0, first, len(whole) - 1} | ({first + 1} if separator is not None else set())
        special |= {n for n in places if target[n] != PAD or source[n] != whole[n]}
        words.append([t for n, t in enumerate(target) if n not in places])
    assert not special
    masked = [token != PAD for row in words for token in row]
    assert np.mean(masked) == pytest.approx(0.3, abs=0.03)
    if masking == "tokens":
        stock = samples_of(task_of(data, **flags, mask_special_tokens=True))
        assert any(target[0] != PAD for _, target, _ in stock)
        ends = zip(samples, stock)
        assert all(a[1][1] == b[1][1] and a[0][1] == b[0][1] for a, b in ends)


# --- order: workers and resuming


def batches(task, epoch, *shard):
    """The batches of an epoch, of one worker of several if *shard* says so."""
    shards, dataset = dict(zip(("num_shards", "shard_id"), shard)), task.dataset("train")
    return task.get_batch_iterator(dataset, max_tokens=200, seed=1, epoch=epoch, **shards)


def content(batch):
    parts = (batch["net_input"]["src_tokens"], batch["target"], batch["relation"])
    return [part.tolist() for part in parts]


@pytest.mark.parametrize("static, masking", [(0, "tokens"), (10, "spans")])
def test_workers_share_the_batches_of_one(static, masking, data):
    task = functools.partial(task_of, data, pairs="nsp", static_masks=static, masking=masking)
    for epoch in (1, 12):
        alone = list(map(content, batches(task(), epoch).next_epoch_itr()))
        workers = [batches(task(), epoch, 2, n).next_epoch_itr() for n in (0, 1)]
        together = [content(batch) for pair in zip(*workers) for batch in pair if batch]
        assert together == alone and len(alone) > 5


# --- refusals

TEXTS = {
    "usual": LINES,
    "one document": LINES[2:4],
    "single lines": [[4, END], [END]] * 5,
    "long lines": [[4] * 30 + [END]] * 5,
    "blank": [[END]] * 3,
}
NSP, SPANS = {"pairs": "nsp"}, {"masking": "spans"}
BOUNDARY = {**SPANS, "span_boundary_objective": True}
MISTAKES = [
    ("one document", NSP, "--pairs nsp: .* has 1 document, .*blank lines, or .* sop"),
    ("single lines", NSP, "--pairs nsp: no document of .* two lines in a"),
    ("long lines", {"pairs": "sop"}, "--pairs sop: .* that fit into 21 tokens"),
    ("blank", NSP, "train: holds blank lines only"),
    ("blank", {"sample_break_mode": "complete_doc"}, "train: holds blank lines only"),
    ("usual", {**NSP, "tokens_per_sample": 4}, "--tokens-per-sample 4: .* at least 5"),
    ("usual", {"static_masks": -1}, "--static-masks -1: must be at least 0"),
    ("usual", {**NSP, "sample_break_mode": "complete"}, "mode complete: has no effect"),
    ("usual", {"shorten_method": "truncate"}, "--shorten-method truncate: .* not support it"),
    ("usual", {"skip_masking": True}, "--skip-masking: --task masked_lm_pairs does not"),
    ("usual", {**NSP, **SPANS, "mask_special_tokens": True}, "--masking tokens, not spans"),
    ("usual", {**SPANS, "mask_whole_words": True}, "--mask-whole-words: has no effect with"),
    ("usual", {"masking": "words", "mask_stdev": 1.0}, "--mask-stdev 1.0: has no effect with"),
    ("usual", {"masking": "phrases"}, "--masking phrases: needs --phrases FILE"),
    ("usual", {"phrases": "x"}, "--phrases x: has no effect with --masking tokens"),
    ("usual", {**BOUNDARY, "masking": "tokens"}, "needs spans, not --masking tokens; give"),
    ("usual", {**SPANS, "mask_prob": 1.0}, "--mask-prob 1.0: must be between 0 and 1"),
    ("usual", {**SPANS, "random_token_prob": 0.95}, "0.1 --random-token-prob 0.95: .* at mo"),
    ("usual", {"mask_whole_words": True}, "--mask-whole-words: needs --bpe .* --masking words"),
]


@pytest.mark.parametrize("text, flags, message", MISTAKES)
def test_texts_and_flags_that_do_not_fit_are_one_line(text, flags, message, data, tmp_path):
    shutil.copy(data / "dict.txt", tmp_path)
    write_ids(tmp_path / "train", TEXTS[text])
    with pytest.raises(UsageError, match=message):
        task_of(tmp_path, **flags)


@pytest.mark.parametrize(
    "flags, model, message",
    [
        (NSP, torch.nn.Module, "--pairs nsp: --arch roberta has no head .* bert_a_masked"),
        (NSP, lambda: tiny("rotary", "--num-segments", "2"), "--num-segments 2: .* in the first s"),
        (BOUNDARY, torch.nn.Module, "--span-boundary-objective: --arch roberta has no head"),
    ],
)
def test_models_without_heads_or_segments_are_refused(flags, model, message, data, monkeypatch):
    monkeypatch.setattr(MaskedLMTask, "build_model", lambda *_: model())
    with pytest.raises(UsageError, match=message):
        task_of(data, **flags).build_model(Namespace(_name="roberta"))


@pytest.mark.parametrize(
    "name, before, now",
    [("pairs", "nsp", "sop"), ("unit", "segment", "sentence"), ("masking", "tokens", "spans")],
)
def test_a_run_keeps_its_samples(name, before, now):
    changed, cfg = {("task", name): (before, now)}, Namespace(checkpoint=Namespace())
    with pytest.raises(UsageError, match=f"--{name} {now}: the run in here was trained with "):
        check_same_kind("here/checkpoint_last.pt", changed, cfg)


@pytest.mark.parametrize(
    "flags, head, words",
    [(NSP, "nsp", "--criterion masked_lm_pairs"), (BOUNDARY, "sbo", "--span-boundary-objective")],
)
def test_a_criterion_that_would_not_train_the_head_is_refused(flags, head, words, data):
    build = task_of(data, **flags).build_criterion
    with pytest.raises(UsageError, match=f"--criterion masked_lm: .* {words}"):
        build(OmegaConf.create({"_name": "masked_lm", "tpu": False}))
    ours = OmegaConf.create({"_name": "masked_lm_pairs", "tpu": False})
    assert list(build(ours).heads) == [head]
