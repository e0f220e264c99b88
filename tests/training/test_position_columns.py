"""--position-ids column: positions from files beside the data, through fairseq's commands."""

import re
import shutil
from argparse import Namespace

import pytest
import torch
from fairseq.data import LanguagePairDataset
from support.commands import SMALL, USER_DIR, check_same, generate, read, refusal, run, train
from support.helpers import PAD, VOCABULARY
from support.toy_lm import BLOCKS, SHAPE, TASK, eval_lm, perplexity

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.training.tasks.position_columns import (
    Column,
    PositionedDataset,
    noting_columns,
)

pytest_plugins = ["support.toy", "support.toy_lm"]

COLUMN = ["--position-ids", "column"]


def counted(text, data, name):
    """Write 0, 1, 2, … for each token of a text, and for </s>."""
    lines = text.read_text().splitlines()
    rows = [" ".join(map(str, range(len(line.split()) + 1))) for line in lines]
    (data / f"{name}.positions").write_text("\n".join(rows) + "\n")


@pytest.fixture(scope="module")
def pairs(toy, tmp_path_factory):
    """The toy translation data with counted positions of the source."""
    data = tmp_path_factory.mktemp("pairs") / "data"
    shutil.copytree(toy.separate, data)
    for split, name in (("train", "train"), ("valid", "valid"), ("test24", "test")):
        counted(toy.text / f"{split}.src", data, f"{name}.src-tgt.src")
    return data


@pytest.mark.parametrize("encoding", ["sinusoidal", "t5"])
def test_counted_positions_of_the_source_change_nothing(pairs, tmp_path, encoding):
    flags = ("--arch", "posenc_transformer", *SMALL, "--position-encoding", encoding)
    flags += ("--dropout", "0")
    found = []
    for name, more in (("plain", ()), ("column", COLUMN)):
        train(pairs, tmp_path / name, *flags, *more)
        found.append(read(tmp_path / name / "checkpoint_last.pt")[0])
    for name, value in found[0].items():
        if not name.endswith("k_proj.bias"):  # it changes no softmax, so its gradients are rounding
            torch.testing.assert_close(found[1][name], value, atol=1e-3, rtol=1e-2, msg=name)
    searches = [
        generate(pairs, tmp_path / name / "checkpoint_last.pt").hypotheses()
        for name in ("plain", "column")
    ]
    assert len(searches[0]) == 24
    check_same(searches[1], searches[0])
    lines = [pairs, *USER_DIR, "--path", tmp_path / "column" / "checkpoint_last.pt", "--cpu"]
    message = run("interactive", *lines, stdin="a1 a2\n").message()
    assert "--position-ids column: the encoder is given tokens without positions" in message


@pytest.mark.parametrize("mode", ["none", "eos"])
def test_counted_positions_of_a_language_model_change_nothing(toy, corpus, tmp_path, mode):
    """Positions of lines are those of blocks only if each block is a line."""
    data = tmp_path / "data"
    shutil.copytree(corpus, data)
    for split, text in (("train", "train"), ("valid", "valid"), ("test", "valid")):
        counted(toy.text / f"{text}.src", data, split)
    flags = [*USER_DIR, "--arch", "posenc_lm", *SHAPE, *BLOCKS, "--sample-break-mode", mode]
    flags += ["--position-encoding", "rotary+shaw", "--max-target-positions", "32"]
    found = []
    for name, more in (("plain", ()), ("column", COLUMN)):
        train(data, tmp_path / name, *flags, *more)
        checkpoint = tmp_path / name / "checkpoint_last.pt"
        found.append(perplexity(eval_lm(data, checkpoint, "--sample-break-mode", mode)))
    assert (found[0] == pytest.approx(found[1], rel=1e-3)) == (mode == "eos")
    search = [*TASK, "--path", tmp_path / "column" / "checkpoint_last.pt", "--cpu"]
    message = run("interactive", data, *USER_DIR, *search, stdin="a1 a2\n").message()
    assert "--position-ids column: the decoder is given tokens without positions" in message


@pytest.mark.parametrize(
    "line, message",
    [
        ("0 1", r"train.src-tgt.src.positions: line 2: 2 positions for \d+ tokens"),
        ("0 -1 2", "line 2: '-1' is no position; give numbers from 0 on"),
        ("0 x 2", "line 2: 'x' is no position"),
        ("0 1 2 5000", "5000 is beyond the 1024 positions of the model; give smaller numbers"),
        (None, "has 1 lines, and the data 60"),
    ],
)
def test_bad_files_are_refused_in_one_line(pairs, tmp_path, line, message):
    data = tmp_path / "data"
    shutil.copytree(pairs, data)
    path = data / "train.src-tgt.src.positions"
    first, _, *others = path.read_text().splitlines()
    path.write_text("\n".join([first] if line is None else [first, line, *others]) + "\n")
    flags = ("--arch", "roformer_tiny", *SMALL, *COLUMN)
    assert re.search(message, refusal(data, tmp_path / "run", *flags))


def test_a_missing_file_and_flags_that_change_tokens_are_refused(toy, pairs, tmp_path):
    flags = ("--arch", "roformer_tiny", *SMALL, *COLUMN)
    message = refusal(toy.separate, tmp_path / "run", *flags)
    assert "--position-ids column: " in message and "positions: no such file; give" in message
    message = refusal(pairs, tmp_path / "run", *flags, "--truncate-source")
    assert message.endswith("has a number for each token of the data; drop it")


def test_other_tasks_are_refused():
    model = Namespace(completed_settings=Namespace(position_ids="column"))
    task = Namespace(cfg=Namespace(_name="masked_lm"))
    with pytest.raises(UsageError, match="--task masked_lm has no positions beside its data"):
        noting_columns(lambda *given: model)(task, None)


@pytest.mark.parametrize("left", [True, False])
def test_positions_of_a_batch_stand_where_its_tokens_do(tmp_path, left):
    texts = [torch.tensor([7, 8, 2]), torch.tensor([9, 2]), torch.tensor([5, 6, 7, 8, 2])]
    sizes = [len(text) for text in texts]
    path = tmp_path / "positions"
    path.write_text("4 5 6\n0 9\n1 1 0 3 2\n")
    pairs = LanguagePairDataset(texts, sizes, VOCABULARY, texts, sizes, left_pad_source=left)
    data = PositionedDataset(pairs, Column(str(path), sizes, 64), PAD)
    batch = data.collater([data[index] for index in (1, 0, 2)])
    tokens, positions = (batch["net_input"][name] for name in ("src_tokens", "position_ids"))
    for row, index in enumerate(batch["id"].tolist()):
        real = tokens[row] != PAD
        assert tokens[row][real].tolist() == texts[index].tolist()
        assert positions[row][real].tolist() == data.column[index].tolist()
        assert positions[row][~real].eq(0).all()
    assert data.src_sizes.tolist() == sizes
