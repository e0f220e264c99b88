"""The WMT14 En-De recipe: all its scripts on made-up archives, and a Slurm job."""

import hashlib
import os
import random
import re
import signal
import subprocess

import pytest
import sacrebleu
from support.recipes import WMT14, archive, bash, environment, stand_ins, succeed
from support.waiting import until

from fairseq_posenc.serving.preparation import words_of

pytestmark = pytest.mark.journeys
ENGLISH = "the a cat dog house sees finds likes and old well-known small e-mail quickly today"
GERMAN = "die eine Katze Hund Haus sieht findet mag und alt wohl-bekannt klein E-Mail schnell heute"
WORDS = dict(zip(ENGLISH.split(), GERMAN.split()))
SMALL = {"WORKERS": "1", "SYMBOLS": "120", "PRECISION": ""}


def sentence_pairs(count, seed):
    draw = random.Random(seed)
    for _ in range(count):
        words = draw.choices(sorted(WORDS), k=draw.randint(3, 9))
        yield " ".join(words) + ".", " ".join(WORDS[word] for word in words) + "."


def sgm(sentences):
    segments = (line.replace("&", "&amp;") for line in sentences)
    body = "\n".join(f'<seg id="{i}"> {line}\n</seg>' for i, line in enumerate(segments, 1))
    return f'<srcset setid="x" srclang="any">\n<doc docid="one">\n<p>\n{body}\n</p>\n</doc>\n'


def write_archives(folder, training):
    """Write the five archives, with the pairs *training*, and a list of their digests."""
    folder.mkdir(exist_ok=True)
    # as in the real texts: empty lines, line breaks inside a line, pairs of unequal lengths
    crawl = [("", "etwas"), ("the\rcat & a dog", "die\rKatze & ein\u2028Hund"), ("x " * 40, "y")]
    held_out = {"valid": list(sentence_pairs(21, 4)), "test": list(sentence_pairs(22, 5))}
    held_out["test"].insert(0, ("the cat & the dog", "die Katze & der „Hund“"))
    archives = {
        "training-parallel-europarl-v7": ("training/europarl-v7.de-en.{}", training[:-9]),
        "training-parallel-commoncrawl": ("commoncrawl.de-en.{}", crawl),
        "training-parallel-nc-v9": ("training/news-commentary-v9.de-en.{}", training[-9:]),
        "dev": ("dev/newstest2013-{}.sgm", held_out["valid"]),
        "test-full": ("test-full/newstest2014-deen-{}.sgm", held_out["test"]),
    }
    digests = ""
    for name, (member, pairs) in archives.items():
        held, files = member.endswith(".sgm"), {}
        for lang, side, sentences in zip(("en", "de"), ("src.en", "ref.de"), zip(*pairs)):
            text = sgm(sentences) if held else "\n".join(sentences)  # no line feed at the end
            files[member.format(side if held else lang)] = text.encode()
        content = archive(files)
        (folder / f"{name}.tgz").write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        digests += f"sha256sum {digest} {name}.tgz https://localhost/\n"
    (folder / "archives").write_text(digests)


def prepare(folder, **variables):
    raw = {"RAW": str(folder / "raw"), "ARCHIVES": str(folder / "raw" / "archives")}
    return bash("prepare.sh", "out", cwd=folder, **{**SMALL, **raw, **variables})


@pytest.fixture(scope="session")
def prepared(once):
    """The output of prepare.sh, which was killed at its last step and started again."""

    def make(folder):
        write_archives(folder / "raw", list(sentence_pairs(340, 1)))
        killer = 'mkdir "$(dirname "$0")/../out/data-bin.part"\nkill -9 $PPID'
        programs = stand_ins(folder / "bin", {"fairseq-preprocess": killer})
        path = os.pathsep.join([programs, environment()["PATH"]])
        assert prepare(folder, PATH=path).returncode == -signal.SIGKILL
        codes = (folder / "out" / "bpe.codes").stat().st_mtime_ns
        result = prepare(folder)
        assert result.returncode == 0, result.stderr
        assert (folder / "out" / "bpe.codes").stat().st_mtime_ns == codes

    return once("wmt14", make)


def lines(path):
    return path.read_bytes().decode().split("\n")[:-1]


def test_no_sentence_is_lost_and_words_are_those_of_serving(prepared):
    out = prepared / "out"
    assert [len(lines(out / "plain" / f"train.{lang}")) for lang in ("en", "de")] == [343, 343]
    pairs = list(zip(lines(out / "bpe" / "train.en"), lines(out / "bpe" / "train.de")))
    sizes = [[len(side.split()) for side in pair] for pair in pairs]
    kept = [pair for pair, (a, b) in zip(pairs, sizes) if 0 < max(a, b) <= 1.5 * min(a, b)]
    cleaned = zip(lines(out / "clean" / "train.en"), lines(out / "clean" / "train.de"))
    assert list(cleaned) == kept and 300 < len(kept) < 342
    assert len(lines(out / "bpe" / "valid.en")) == 21
    assert lines(out / "data-bin" / "test.de")[0] == "die Katze & der „Hund“"
    for lang in ("en", "de"):
        words = words_of("moses", lang, dash_splits=True)
        for split in ("train", "test"):
            texts = [lines(out / part / f"{split}.{lang}") for part in ("plain", "tokens")]
            assert [" ".join(words(line)) for line in texts[0]] == texts[1]
    assert " @-@ " in (out / "data-bin" / "test.tok.de").read_text()
    dictionaries = {(out / "data-bin" / f"dict.{lang}.txt").read_bytes() for lang in ("en", "de")}
    assert len(dictionaries) == 1


def test_a_second_start_does_nothing(prepared):
    before = sorted((path, path.stat().st_mtime_ns) for path in prepared.rglob("out/*/*"))
    again = prepare(prepared, PATH="/usr/bin:/bin")  # without the recipe's tools
    assert again.returncode == 0 and again.stdout == "out/data-bin exists already\n"
    assert before == sorted((path, path.stat().st_mtime_ns) for path in prepared.rglob("out/*/*"))


def check_scores(data, folder):
    """Compare the scores that evaluate.sh printed with scores computed from its translations."""
    texts, words = (lines(folder / f"hypotheses.{end}") for end in ("txt", "tok"))
    reference = [lines(data / name) for name in ("test.de", "test.tok.de")]
    whole = [[line.replace(" @-@ ", "-") for line in side] for side in (words, reference[1])]
    parted = [
        [re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", line) for line in side] for side in whole
    ]
    bleu = {
        name: sacrebleu.corpus_bleu(side[0], [side[1]], tokenize="none", force=True).score
        for name, side in {"tokenised": whole, "compound-split": parted}.items()
    }
    scores = [line.strip() for line in lines(folder / "scores.txt")]
    assert scores[:2] == [f"{name} BLEU {score:.2f}" for name, score in bleu.items()]
    assert f" = {sacrebleu.corpus_bleu(texts, [reference[0]]).score:.2f} " in scores[2]
    assert "tok:13a" in scores[2] and scores[3].startswith("chrF2") and scores[4].startswith("TER")
    return sacrebleu.corpus_bleu(texts, [reference[0]]).score


def test_training_is_resumed_averaged_and_scored(prepared, tmp_path):
    data, run = prepared / "out" / "data-bin", tmp_path / "run"
    flags = ["--cpu", "--max-tokens", 400, "--save-interval-updates", 4, "--max-update"]
    for updates in (6, 10):
        given = ["roformer_tiny", data, run, *flags, updates]
        resumed = succeed("train.sh", *given, cwd=tmp_path, **SMALL)
    assert "@ 6 updates" in resumed.stdout
    arguments = [data, run, "--cpu", "--max-len-b", 20]
    succeed("evaluate.sh", *arguments, cwd=tmp_path, AVERAGE="2")
    check_scores(data, run / "evaluate")


@pytest.mark.parametrize("sent", [signal.SIGUSR1, signal.SIGTERM])
def test_a_job_is_requeued_when_its_time_is_up_but_not_when_it_is_cancelled(tmp_path, sent):
    bodies = {
        "srun": 'echo "$@" >"$CALLS.part" && mv "$CALLS.part" "$CALLS.started"; exec sleep 60',
        "scontrol": 'echo "$@" >>"$CALLS"',
    }
    variables = {**environment(), "CALLS": str(tmp_path / "calls"), "SLURM_CPUS_PER_TASK": "8"}
    variables["PATH"] = os.pathsep.join([stand_ins(tmp_path / "bin", bodies), variables["PATH"]])
    slurm = {"SLURM_JOB_ID": "123456", "SLURM_NNODES": "2", "SLURM_GPUS_ON_NODE": "4"}
    words = ["bash", str(WMT14 / "train.sbatch"), "arch", "data", "run", "--lr", "1e-3"]
    job = subprocess.Popen(words, env={**variables, **slurm}, cwd=tmp_path, start_new_session=True)
    try:
        started = tmp_path / "calls.started"
        until(started.exists, seconds=60)
        call = started.read_text()
        job.send_signal(sent)
        assert job.wait(timeout=60) != 0
    finally:
        os.killpg(job.pid, signal.SIGKILL)
    given = "train.sh arch data run --lr 1e-3 --distributed-world-size 8 --distributed-port 15456\n"
    assert call.endswith(given)
    assert (tmp_path / "calls").exists() == (sent == signal.SIGUSR1)
