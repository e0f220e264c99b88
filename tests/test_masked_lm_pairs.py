"""--task masked_lm_pairs: what a sample is, its masks, the losses, and trainings by command."""

import random
import shutil
from argparse import Namespace

import numpy as np
import pytest
import torch
from commands import TRAINING, USER_DIR, read, run, succeed
from conversion import write_ids
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.logging import metrics
from fairseq.tasks.masked_lm import MaskedLMConfig, MaskedLMTask
from omegaconf import OmegaConf
from test_masked_lm import SMALL, tiny
from test_segments import PAIRS as READS_PAIRS
from test_segments import by_hand, step_of

from fairseq_posenc.errors import UsageError
from fairseq_posenc.loading.same_kind import check_same_kind
from fairseq_posenc.models.masked_lm import MaskedLMModel
from fairseq_posenc.tasks import masked_lm_pairs, masking_flags
from fairseq_posenc.tasks.masked_lm_pairs import MaskedLMPairsConfig, MaskedLMPairsTask

CLS, PAD, END = 0, 1, 2
LONGEST = 24
PAIRS = [("nsp", "segment"), ("nsp", "sentence"), ("sop", "segment"), ("sop", "sentence")]


def text(documents=60):
    """Lines by number, in which a token is 4 and the number of its line, and their documents."""
    draw, lines, document_of = random.Random(5), [[END], [END]], {}
    for document in range(documents):
        for _ in range(draw.choice([1, 2, 3, 5, 9])):
            document_of[len(lines)] = document
            lines.append([4 + len(lines)] * draw.choice([1, 2, 4, 7, 13]) + [END])
        lines += [[END]] * draw.randint(1, 2)
    return lines, document_of


LINES, DOCUMENT_OF = text()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lines")
    words = "".join(f"w{number} 1\n" for number in range(len(LINES)))
    (folder / "dict.txt").write_text(words)
    write_ids(folder / "train", LINES)
    write_ids(folder / "valid", LINES[:150])
    return folder


def configured(settings, data, **flags):
    flags = {"data": str(data), "tokens_per_sample": LONGEST, "seed": 1, **flags}
    for name, value in flags.items():
        setattr(settings, name, value)
    return settings


def task_of(data, **flags):
    task = MaskedLMPairsTask.setup_task(configured(MaskedLMPairsConfig(), data, **flags))
    task.load_dataset("train")
    return task


def samples_of(task, epoch=1, count=10**6):
    """Inputs, targets and relations of samples in an epoch."""
    samples = task.dataset("train")
    samples.set_epoch(epoch)
    found = (samples[number] for number in range(min(count, len(samples))))
    return [(s["source"].tolist(), s["target"].tolist(), s.get("relation")) for s in found]


def originals(samples):
    return [[s if t == PAD else t for s, t in zip(source, target)] for source, target, _ in samples]


def whole(first, last):
    return [token for line in range(first, last) for token in LINES[line][:-1]]


# --- pairs


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
    task, lengths = task_of(data, pairs="nsp"), ([], [])
    for epoch in range(1, 20):
        samples = task.dataset("train")
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


# --- running text


@pytest.mark.parametrize("mode", ["complete", "complete_doc"])
def test_every_token_is_in_one_sample_and_documents_stay_apart_if_asked(mode, data):
    rows = originals(samples_of(task_of(data, sample_break_mode=mode)))
    assert all(row[0] == CLS and len(row) <= LONGEST for row in rows)
    tokens = sorted(token for row in rows for token in row[1:])
    blank = mode == "complete"  # then an extra </s> between documents
    expected = sorted(token for line in LINES if blank or line != [END] for token in line)
    assert tokens == expected
    together = [{DOCUMENT_OF[t - 4] for t in row[1:] if t > 3} for row in rows]
    assert (max(map(len, together)) == 1) == (mode == "complete_doc")


def test_running_text_is_that_of_fairseqs_masked_lm(data):
    flags = {"sample_break_mode": "complete", "mask_prob": 0.3}
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


# --- masks


@pytest.mark.parametrize(
    "flags", [{"pairs": "nsp", "masking": "spans"}, {"sample_break_mode": "complete"}]
)
@pytest.mark.parametrize("masks", [0, 1, 3])
def test_static_masks_are_taken_in_turn_and_dynamic_ones_are_new(masks, flags, data):
    task = task_of(data, static_masks=masks, **flags)
    epochs = [samples_of(task, epoch, 20) for epoch in range(1, 8)]
    for one in range(7):
        for other in range(one):
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
    monkeypatch.setattr(masking_flags, "get_whole_word_mask", lambda *_: begins)
    monkeypatch.setattr(masked_lm_pairs, "bpe_flags", lambda _: "gpt2")
    samples = samples_of(task_of(data, pairs="nsp", mask_whole_words=True, mask_prob=0.3), 1, 50)
    for (_, target, _), row in zip(samples, originals(samples)):
        for position in range(1, len(row)):
            if not begins[row[position]]:
                assert (target[position] == PAD) == (target[position - 1] == PAD)


# --- order: workers and resuming


def batches(task, epoch, shards=1, shard=0):
    return task.get_batch_iterator(
        task.dataset("train"),
        max_tokens=200,
        seed=1,
        epoch=epoch,
        num_shards=shards,
        shard_id=shard,
    )


def content(batch):
    return (batch["net_input"]["src_tokens"].tolist(), batch["target"].tolist(), batch["relation"])


def equal(one, other):
    return len(one) == len(other) and all(
        a[:2] == b[:2] and torch.equal(a[2], b[2]) for a, b in zip(one, other)
    )


@pytest.mark.parametrize("static, masking", [(0, "tokens"), (10, "spans")])
def test_workers_share_the_batches_of_one(static, masking, data):
    def task():
        return task_of(data, pairs="nsp", static_masks=static, masking=masking)

    for epoch in (1, 12):
        alone = list(map(content, batches(task(), epoch).next_epoch_itr()))
        parts = [
            [
                content(batch) if batch else None
                for batch in batches(task(), epoch, 2, n).next_epoch_itr()
            ]
            for n in (0, 1)
        ]
        together = [batch for pair in zip(*parts) for batch in pair if batch is not None]
        assert equal(together, alone) and len(alone) > 5


@pytest.mark.parametrize("static, masking", [(0, "spans"), (2, "tokens")])
def test_a_resumed_epoch_goes_on_with_the_same_batches(static, masking, data):
    flags = {"pairs": "nsp", "static_masks": static, "masking": masking}
    task = task_of(data, **flags)
    for epoch in (1, 2, 3):  # in one process
        iterator = batches(task, epoch)
        begun = iterator.next_epoch_itr()
        found = [content(next(begun)) for _ in range(5)]
        state = iterator.state_dict()
        found += map(content, begun)
    resumed = batches(task_of(data, **flags), 3)
    resumed.load_state_dict(state)
    assert equal(list(map(content, resumed.next_epoch_itr())), found[5:])


# --- the loss


def relating():
    torch.manual_seed(2)
    model = tiny("rotary", *READS_PAIRS)
    model.register_relation_head()
    return model


def criterion(relation):
    task = Namespace(relation=relation, target_dictionary=Namespace(pad=lambda: PAD))
    return CRITERION_REGISTRY["masked_lm_pairs"](Namespace(tpu=False), task)


def batch_of(count, length):
    tokens = torch.randint(4, 9, (count, length))
    tokens[:, 0], tokens[:, 4], tokens[:, -1] = CLS, END, END
    asked = torch.rand(tokens.shape) < 0.4
    return {
        "net_input": {"src_tokens": tokens.masked_fill(asked, 3)},
        "target": tokens.masked_fill(~asked, PAD),
        "relation": torch.randint(0, 2, (count,)),
        "nsentences": count,
        "ntokens": tokens.numel(),
    }


@pytest.mark.parametrize("relation", ["nsp", "sop"])
def test_the_loss_is_the_mean_of_tokens_plus_that_of_pairs(relation):
    model, ours = relating(), criterion(relation)
    outputs, tokens, pairs, tokens_right, pairs_right = [], [], [], 0, 0
    for sample in (batch_of(5, 9), batch_of(3, 12)):
        loss, size, output = ours(model, sample)
        outputs.append(output)
        features = model(**sample["net_input"], features_only=True)[0]
        logits = model.encoder.lm_head(features).detach().double().numpy()
        classes = model.classification_heads["sentence_relation"](features)
        classes, target = classes.detach().double().numpy(), sample["target"].numpy()
        asked = target != PAD

        def nats(scores, right):
            chosen = np.take_along_axis(scores, right[:, None], 1)[:, 0]
            return np.log(np.exp(scores).sum(1)) - chosen

        here = nats(logits[asked], target[asked])
        kinds = nats(classes, sample["relation"].numpy())
        assert size == asked.sum()
        assert loss.item() / int(size) == pytest.approx(here.mean() + kinds.mean(), rel=1e-5)
        tokens += here.tolist()
        pairs += kinds.tolist()
        tokens_right += (logits[asked].argmax(1) == target[asked]).sum()
        pairs_right += (classes.argmax(1) == sample["relation"].numpy()).sum()
    with metrics.aggregate() as log:
        ours.reduce_metrics(outputs)
    found, bits = log.get_smoothed_values(), np.log(2)
    whole = sum(output["loss"].item() for output in outputs) / len(tokens)
    assert found["loss"] == pytest.approx(whole / bits, abs=1e-3)
    assert found["mlm_loss"] == pytest.approx(np.mean(tokens) / bits, abs=1e-3)
    assert found["ppl"] == pytest.approx(np.exp(np.mean(tokens)), rel=1e-2)
    assert found[f"{relation}_loss"] == pytest.approx(np.mean(pairs) / bits, abs=1e-3)
    assert found["accuracy"] == pytest.approx(100 * tokens_right / len(tokens), abs=0.01)
    assert found[f"{relation}_accuracy"] == pytest.approx(100 * pairs_right / len(pairs), abs=0.01)


def test_both_heads_learn_from_one_pass_and_running_text_needs_one():
    model, sample = relating(), batch_of(4, 9)
    criterion("nsp")(model, sample)[0].backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    sample.pop("relation")
    loss, _, output = criterion(None)(tiny("rotary"), sample)
    assert output["mlm_loss"] == output["loss"] == loss.detach()


# --- mistakes


@pytest.mark.parametrize(
    "lines, flags, message",
    [
        (LINES[2:4], {"pairs": "nsp"}, "--pairs nsp: .* has 1 document, .*blank lines, or .* sop"),
        ([[4, END], [END]] * 5, {"pairs": "nsp"}, "--pairs nsp: no document of .* two lines in a"),
        ([[4] * 30 + [END]] * 5, {"pairs": "sop"}, "--pairs sop: .* that fit into 21 tokens"),
        ([[END]] * 3, {"pairs": "nsp"}, "train: holds blank lines only"),
        ([[END]] * 3, {"sample_break_mode": "complete_doc"}, "train: holds blank lines only"),
        (LINES, {"pairs": "nsp", "tokens_per_sample": 4}, "--tokens-per-sample 4: .* at least 5"),
        (LINES, {"static_masks": -1}, "--static-masks -1: must be at least 0"),
        (LINES, {"pairs": "nsp", "sample_break_mode": "complete"}, "mode complete: has no effect"),
        (LINES, {"shorten_method": "truncate"}, "--shorten-method truncate: .* not support it"),
        (LINES, {"skip_masking": True}, "--skip-masking: --task masked_lm_pairs does not"),
    ],
)
def test_text_without_pairs_and_wrong_flags_are_one_line(lines, flags, message, data, tmp_path):
    shutil.copy(data / "dict.txt", tmp_path)
    write_ids(tmp_path / "train", lines)
    with pytest.raises(UsageError, match=message):
        task_of(tmp_path, **flags)


@pytest.mark.parametrize(
    "model, message",
    [
        (lambda: torch.nn.Linear(1, 1), "--pairs nsp: --arch roberta has no head .* bert_a_masked"),
        (lambda: tiny("rotary", "--num-segments", "2"), "--num-segments 2: .* in the first seg"),
    ],
)
def test_models_that_cannot_tell_pairs_apart_are_refused(model, message, data, monkeypatch):
    monkeypatch.setattr(MaskedLMTask, "build_model", lambda *_: model())
    with pytest.raises(UsageError, match=message):
        task_of(data, pairs="nsp").build_model(Namespace(_name="roberta"))


@pytest.mark.parametrize(
    "name, before, now",
    [("pairs", "nsp", "sop"), ("unit", "segment", "sentence"), ("masking", "tokens", "spans")],
)
def test_a_run_keeps_its_samples(name, before, now):
    saved = {"cfg": {"task": {name: before}}}
    cfg = Namespace(task={name: now}, checkpoint=Namespace())
    with pytest.raises(UsageError, match=f"--{name} {now}: the run in here was trained with "):
        check_same_kind("here/checkpoint_last.pt", saved, cfg)


def test_a_criterion_that_would_not_train_the_head_is_refused(data):
    task = task_of(data, pairs="nsp")
    stock, ours = (
        OmegaConf.create({"_name": name, "tpu": False}) for name in ("masked_lm", "masked_lm_pairs")
    )
    with pytest.raises(UsageError, match="--criterion masked_lm: .* --criterion masked_lm_pairs"):
        task.build_criterion(stock)
    assert task.build_criterion(ours).relation == "nsp"


def test_the_head_is_left_out_where_it_is_not_needed():
    state = relating().state_dict()
    names = [name for name in state if "sentence_relation" in name]
    assert len(names) == 4
    plain = tiny("rotary", *READS_PAIRS)
    assert isinstance(plain, MaskedLMModel)
    plain.load_state_dict(state)  # strictly
    assert not plain.classification_heads


# --- by command

PRETRAIN = [
    *("--task", "masked_lm_pairs", "--criterion", "masked_lm_pairs", "--pairs", "nsp"),
    *("--arch", "roformer_masked_lm_tiny", *SMALL, "--num-segments", "2"),
    *("--tokens-per-sample", str(LONGEST), "--max-tokens", "1000", "--max-epoch", "4"),
    *("--update-epoch-batch-itr", "True", "--static-masks", "2"),
    *("--masking", "spans", "--span-boundary-objective"),
]


def pretrain(data, folder, *flags):
    return run("train", data, *USER_DIR, "--save-dir", folder, *TRAINING, *PRETRAIN, *flags)


def test_training_resumes_in_mid_epoch_and_fine_tunes(data, tmp_path, monkeypatch):
    straight = pretrain(data, tmp_path / "straight", "--max-update", "9", "--save-interval", "9")
    assert straight.status == 0, straight.err
    part = ["--max-update", "5", "--no-epoch-checkpoints"]
    assert pretrain(data, tmp_path / "parts", *part).status == 0
    resumed = pretrain(data, tmp_path / "parts", "--max-update", "9", "--no-epoch-checkpoints")
    assert resumed.status == 0 and resumed.entries("train_inner")[0]["num_updates"] == "6"
    updates = [f"update {n}" for n in range(6, 10)]
    assert [resumed.losses()[n] for n in updates] == [straight.losses()[n] for n in updates]
    last, other = (tmp_path / name / "checkpoint_last.pt" for name in ("straight", "parts"))
    one, two = read(last)[0], read(other)[0]
    assert all(torch.equal(value, two[name]) for name, value in one.items())
    entry = resumed.entries("valid")[-1]
    assert {"valid_mlm_loss", "valid_sbo_loss", "valid_nsp_loss", "valid_nsp_accuracy"} < set(entry)

    message = pretrain(data, tmp_path / "parts", "--static-masks", "3").message()
    assert "--static-masks 3: the run in" in message and "was trained with 2" in message

    usual = ["--path", last, "--cpu", "--num-workers", "0", "--log-format", "json"]
    task = ["--task", "masked_lm_pairs", "--pairs", "none", "--sample-break-mode", "complete"]
    common = succeed("validate", data, *USER_DIR, *usual, *task, "--batch-size", "32")
    assert "valid_nsp_loss" not in common.entries("valid")[0]

    for name in ("input0", "input1", "label"):
        (tmp_path / name).mkdir()
        shutil.copy(data / "dict.txt", tmp_path / name)
        for split in ("train", "valid"):
            write_ids(tmp_path / name / split, [[4 + n % 2, END] for n in range(8)])
    task = ["--task", "sentence_prediction", "--criterion", "sentence_prediction"]
    task += ["--arch", "posenc_masked_lm", "--init-token", "0", "--separator-token", "2"]
    task += ["--num-classes", "2", "--max-positions", str(LONGEST), "--finetune-from-model", last]
    task += ["--max-epoch", "1", "--save-dir", tmp_path / "tuned"]
    tuned = run("train", tmp_path, *USER_DIR, *TRAINING, *task)
    assert tuned.status == 0, tuned.err
    for head in ("classification_heads.sentence_relation", "span_boundary_head"):
        assert f"left out {head}, which only --" in tuned.out + tuned.err
    assert "deleting classification head" not in tuned.out + tuned.err
    state, settings = read(tmp_path / "tuned" / "checkpoint_last.pt")
    assert settings["segments"] == "pairs"
    assert not any("sentence_relation" in name or "span_boundary" in name for name in state)
