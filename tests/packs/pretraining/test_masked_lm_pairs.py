"""--task masked_lm_pairs: samples, masks, the order of batches, and refusals."""

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
            # a pair is cut only at its outer ends, and only if it is too long
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
    """Epochs 1 to 3 read three folders; epoch 4 reads the first folder with its second mask."""
    task = task_of(":".join([str(data)] * 3), static_masks=3, sample_break_mode="complete")
    epochs = [samples_of(task, epoch, 20) for epoch in (1, 3, 4, 7, 10)]
    assert epochs[0] == epochs[1] == epochs[4] and epochs[0] != epochs[2] != epochs[3] != epochs[0]


@pytest.mark.parametrize("masking", ["tokens", "spans"])
@pytest.mark.parametrize("separator", [None, END, 9])
def test_in_pairs_special_tokens_are_masked_only_if_a_flag_asks_for_it(masking, separator, data):
    """[CLS] must not be masked, because the relation is predicted from it."""
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
    ],
)
def test_models_without_heads_or_segments_are_refused(flags, model, message, data, monkeypatch):
    monkeypatch.setattr(MaskedLMTask, "build_model", lambda *_: model())
    with pytest.raises(UsageError, match=message):
        task_of(data, **flags).build_model(Namespace(_name="roberta"))


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
