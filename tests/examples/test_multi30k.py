"""The Multi30k recipe: download, the whole chain for two architectures at once, mistakes."""

import gzip
import hashlib
import json
import os
import random
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.recipes import EXAMPLES, assert_error, bash, commands, flags_of, succeed

RECIPE = EXAMPLES / "multi30k"
RUN, DOWNLOAD = RECIPE / "run.sh", RECIPE / "download.sh"
SIZES = {"train": 90, "val": 15, "test_2016_flickr": 23}  # no multiples of eight
WORDS = dict(
    zip(
        "a dog man sees the big house runs".split(),
        "ein Hund Mann sieht das große Haus läuft".split(),
    )
)
ARCHS = ("transformer", "roformer_tiny")


def corpus():
    draw = random.Random(1)
    for split, size in SIZES.items():
        sides = {"en": [], "de": []}
        for _ in range(size):
            words = draw.choices(sorted(WORDS), k=draw.randint(3, 9))
            sides["en"].append(" ".join(words).capitalize() + ".\n")
            sides["de"].append(" ".join(WORDS[word] for word in words).capitalize() + ".\n")
        for lang, lines in sides.items():
            yield f"{split}.{lang}", "".join(lines).encode()


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for name, content in corpus():
        (folder / name).write_bytes(content)
    return folder


SHORT = ("--epochs", "3", "--average", "2", "--bpe-operations", "40")


def lines_with(word, text):
    return [line for line in text.split("\n") if word in line]


@pytest.mark.slow
def test_two_architectures_at_once_from_text_to_scores(data, tmp_path):
    def run(arch, *more):
        return bash(RUN, data, "out", arch, *SHORT, *more, cwd=tmp_path, timeout=600)

    with ThreadPoolExecutor(2) as both:
        ends = list(both.map(run, ARCHS))
    assert [end.returncode for end in ends] == [0, 0], ends
    # one of the two prepared the data, the other found them; their models are of one size
    steps = len(os.listdir(tmp_path / "out" / "data" / "steps"))
    assert sorted(end.stderr.count("already done") for end in ends) == [0, steps]
    sizes = [set(re.findall(r"num\. trained: ([1-9][\d,]*)", end.stdout)) for end in ends]
    assert sizes[0] == sizes[1] and len(sizes[0]) == 1
    for arch, end in zip(ARCHS, ends):
        folder = tmp_path / "out" / f"{arch}-seed1"
        scores = json.loads((folder / "scores.json").read_text())
        names = ["tokenized BLEU", "sacreBLEU", "chrF2", "TER"]
        assert [entry["name"] for entry in scores] == names
        assert '"name": "sacreBLEU"' in (folder / "model" / "README.md").read_text()
        assert [entry["hypotheses"] for entry in scores] == [23] * 4
        assert "tok:13a" in scores[1]["signature"]
        for entry in scores:
            (line,) = lines_with(entry["signature"], end.stdout)
            assert re.match(f"{entry['name']} +{entry['score']:.2f} ", line)
        assert re.search(r"^training took [\d.]+ s \(processor time", end.stderr, re.MULTILINE)
        assert "loaded 90 examples" in end.stdout and "bsz 90" in end.stdout  # none is lost
        assert "not the texts used for the table" in end.stderr
        assert "epoch 003" in (folder / "train.log").read_text()
    # the second time trains nothing, and says the same
    again = run(ARCHS[1])
    assert again.returncode == 0 and "begin training epoch" not in again.stdout
    assert again.stderr.count("already done") == steps + 1  # and the model folder
    assert lines_with("nrefs:", again.stdout) == lines_with("nrefs:", ends[1].stdout)
    # a run is not continued with other flags
    assert_error(run(ARCHS[1], "--", "--dropout", "0.5"), "was begun with --dropout", "--save-dir")


def test_a_dry_run_prints_the_same_training_for_both_and_writes_nothing(data, tmp_path):
    trainings = []
    for arch in ARCHS:
        flags = ["--seed", "7", "--name", "x", "--dry-run", "--", "--weight-decay", "0.01"]
        ran = {c[0]: c for c in commands(bash(RUN, data, "out", arch, *flags, cwd=tmp_path))}
        training, generation = (flags_of(ran[f"fairseq-{name}"]) for name in ("train", "generate"))
        assert training.pop("--arch") == arch
        assert training["--seed"] == "7" and training["--weight-decay"] == "0.01"
        assert generation["--beam"] == "4" and generation["--lenpen"] == "0.6"
        for command in (training, generation):
            assert command["--required-batch-size-multiple"] == "1"
            assert command["--user-dir"].endswith("fairseq_posenc")
        trainings.append(training)
    assert trainings[0] == trainings[1]
    assert os.listdir(tmp_path) == ["data"]


def test_fewer_epochs_than_trained_are_averaged_up_to_that_bound(data, tmp_path):
    flags = ["--epochs", "1", "--average", "1", "--dry-run"]
    ran = commands(bash(RUN, data, "out", "transformer", *flags, cwd=tmp_path))
    (average,) = (flags_of(command) for command in ran if "average" in command)
    assert average["--checkpoint-upper-bound"] == "1" == average["--num-epoch-checkpoints"]


@pytest.mark.parametrize(
    "arguments, parts",
    [
        (["transformer", "--epochs", "2"], ["--average 5", "2 epochs"]),
        (["transformer", "--average", "11", "--epochs", "20"], ["--average 11"]),
        (["transformer", "--name", "data"], ["--name data"]),
    ],
)
def test_mistakes_are_one_line(data, tmp_path, arguments, parts):
    assert_error(bash(RUN, "data", "out", *arguments, cwd=tmp_path), *parts)
    assert os.listdir(tmp_path) == ["data"]


def test_a_missing_text_is_named(data, tmp_path):
    (data / "val.de").unlink()
    result = bash(RUN, "data", "out", "transformer", cwd=tmp_path)
    assert_error(result, "val.de", "download.sh")


@pytest.fixture
def archives(tmp_path):
    """The six archives, as if they had been downloaded already, and a list of digests."""
    part = tmp_path / "new.part"
    part.mkdir()
    digests = []
    for name, content in corpus():
        archive = part / f"{name}.gz"
        archive.write_bytes(gzip.compress(content))
        digests.append(f"{hashlib.sha256(archive.read_bytes()).hexdigest()}  {archive.name}\n")
    (tmp_path / "digests").write_text("".join(digests))
    return part


def test_a_download_goes_on_and_appears_when_it_is_whole(archives, tmp_path):
    given = ("new//", "--checksums", "digests")
    succeed(DOWNLOAD, *given, cwd=tmp_path)
    for name, content in corpus():
        assert (tmp_path / "new" / name).read_bytes() == content
    assert not archives.exists()
    recorded = (tmp_path / "new" / "archives.sha256").read_text()
    assert sorted(recorded.split("\n")) == sorted((tmp_path / "digests").read_text().split("\n"))
    assert_error(bash(DOWNLOAD, *given, cwd=tmp_path), "new: already exists")


def test_other_archives_than_the_published_ones_are_refused(archives, tmp_path):
    result = bash(DOWNLOAD, "new", cwd=tmp_path)
    assert_error(result, "train.en.gz", "md5:", "--checksums")
    assert not (tmp_path / "new").exists()


def test_run_downloads_when_there_is_no_data_folder(tmp_path):
    ran = commands(bash(RUN, "new", "out", "transformer", "--dry-run", cwd=tmp_path))
    alone = commands(bash(DOWNLOAD, "new", "--dry-run", cwd=tmp_path))
    assert ran[: len(alone)] == alone
    fetched = [command for command in alone if "curl" in command]
    assert all(command[-1].startswith("https://") for command in fetched)
    names = [os.path.basename(command[-1]) for command in fetched]
    assert sorted(names) == sorted(f"{name}.gz" for name, _ in corpus())
    assert os.listdir(tmp_path) == []


def test_the_digests_are_of_the_six_texts():
    lines = (RECIPE / "texts.sha256").read_text().split("\n")
    found = re.findall(r"^[0-9a-f]{64}  (\S+)$", "\n".join(lines), re.MULTILINE)
    assert sorted(found) == sorted(name for name, _ in corpus())
