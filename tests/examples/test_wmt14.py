"""The WMT14 En-De recipe: the whole chain on made-up archives, its flags for GPUs, Slurm."""

import hashlib
import io
import os
import random
import re
import shutil
import signal
import subprocess
import tarfile
import time

import pytest
import sacrebleu
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from support.commands import ROOT
from support.recipes import WMT14, bash, environment, succeed
from support.waiting import until

from fairseq_posenc.serving.words import words_of

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
    """The five archives, with these training pairs, and a list of their digests."""
    folder.mkdir(exist_ok=True)
    # what the real texts have too: gaps, breaks inside a line, pairs that do not match
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
        path = folder / f"{name}.tgz"
        with tarfile.open(path, "w:gz") as archive:
            for lang, side, sentences in zip(("en", "de"), ("src.en", "ref.de"), zip(*pairs)):
                held = member.endswith(".sgm")
                text = sgm(sentences) if held else "\n".join(sentences)  # without a last line feed
                info = tarfile.TarInfo(member.format(side if held else lang))
                info.size = len(text.encode())
                archive.addfile(info, io.BytesIO(text.encode()))
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        digests += f"sha256sum {digest} {path.name} https://localhost/\n"
    (folder / "archives").write_text(digests)


def prepare(folder, **variables):
    raw = {"RAW": str(folder / "raw"), "ARCHIVES": str(folder / "raw" / "archives")}
    return bash("prepare.sh", "out", cwd=folder, **{**SMALL, **raw, **variables})


@pytest.fixture(scope="session")
def prepared(once):
    """What prepare.sh made of a few hundred pairs, killed at its last step and started again."""

    def make(folder):
        write_archives(folder / "raw", list(sentence_pairs(340, 1)))
        killer = folder / "bin" / "fairseq-preprocess"
        killer.parent.mkdir()
        killer.write_text(
            '#!/bin/sh\nmkdir "$(dirname "$0")/../out/data-bin.part"\nkill -9 $PPID\n'
        )
        killer.chmod(0o755)
        path = os.pathsep.join([str(killer.parent), environment()["PATH"]])
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


def test_a_second_start_does_nothing_and_another_setting_is_refused(prepared):
    before = sorted((path, path.stat().st_mtime_ns) for path in prepared.rglob("out/*/*"))
    again = prepare(prepared, PATH="/usr/bin:/bin")  # without any tool
    assert again.returncode == 0 and again.stdout == "out/data-bin is there\n"
    refused = prepare(prepared, SYMBOLS="99")
    assert refused.returncode == 1 and refused.stderr == (
        "prepare.sh: out has SYMBOLS=120, and now SYMBOLS=99; choose another folder\n"
    )
    assert before == sorted((path, path.stat().st_mtime_ns) for path in prepared.rglob("out/*/*"))


def test_a_damaged_archive_is_named(prepared, tmp_path):
    shutil.copytree(prepared / "raw", tmp_path / "raw")
    archive = tmp_path / "raw" / "dev.tgz"
    archive.write_bytes(archive.read_bytes()[:-9])
    refused = prepare(tmp_path)
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1] == (
        f"prepare.sh: {archive}: is not the file that {tmp_path}/raw/archives names; "
        "remove it, or correct the list"
    )


def test_sgm_segments_in_order_as_plain_lines():
    def read(text):
        words = ["python", str(WMT14 / "sgm.py")]
        return subprocess.run(words, input=text, capture_output=True, text=True, env=environment())

    text = (
        '<srcset>\n<doc>\n<SEG id="1"> a  &amp;amp; b </SEG>\n<seg id="2">two\nlines &lt;x&gt;'
        '</seg>\n<hl><seg id="3">&quot;q&quot;</seg></hl>\n<seg id="4"></seg></doc></srcset>'
    )
    assert read(text).stdout == 'a &amp; b\ntwo lines <x>\n"q"\n\n'
    for broken in ("no segments", '<seg id="1">a</seg><seg id="2">b'):
        assert read(broken).returncode == 1 and "cut off" in read(broken).stderr


def check_scores(data, folder):
    """The scores that evaluate.sh printed are those of the translations beside them."""
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


@pytest.mark.slow
def test_rehearsal(tmp_path):
    """Many pairs from archives to scores; the training is killed and resumed."""
    sides = [
        ROOT.parent / "shared" / "data" / "multi30k" / f"train.{lang}" for lang in ("en", "de")
    ]
    real = sides[0].exists()
    pairs = list(zip(*map(lines, sides)))[:20000] if real else list(sentence_pairs(20000, 1))
    write_archives(tmp_path / "raw", pairs)
    sized = {"SYMBOLS": "4000" if real else "120", "WORKERS": "2"}
    done = prepare(tmp_path, **sized)
    assert done.returncode == 0, done.stderr
    data, run = tmp_path / "out" / "data-bin", tmp_path / "run"
    given = ["--cpu", "--max-tokens", "1000", "--max-update", "200", "--lr", "2e-3"]
    given += ["--warmup-updates", "50", "--save-interval-updates", "25", "--log-interval", "5"]
    words = ["bash", str(WMT14 / "train.sh"), "roformer_tiny", str(data), str(run), *given]
    with open(tmp_path / "log", "w") as log:
        job = subprocess.Popen(words, env={**environment(), **SMALL}, stdout=log, stderr=log)
        while not list(run.glob("checkpoint_*_75.pt")) and job.poll() is None:
            time.sleep(0.1)
        job.kill()  # bash has become fairseq-train
        assert job.wait() == -signal.SIGKILL, (tmp_path / "log").read_text()
    resumed = bash("train.sh", *words[2:], cwd=tmp_path, timeout=1800, **SMALL)
    assert resumed.returncode == 0 and "num_updates: 200" in resumed.stdout, resumed.stderr
    assert re.search(r"@ (75|100) updates", resumed.stdout)
    succeed("evaluate.sh", data, run, "--cpu", "--max-len-b", 30, cwd=tmp_path, timeout=1800)
    assert check_scores(data, run / "evaluate") > 0


@pytest.mark.slow
def test_torchrun_trains_one_model_in_two_processes(prepared, tmp_path):
    words = ["torchrun", "--nproc-per-node", "2", "--master-port", "29517", "--no-python", "bash"]
    words += [str(WMT14 / "train.sh"), "roformer_tiny", str(prepared / "out" / "data-bin"), "run"]
    words += ["--cpu", "--distributed-backend", "gloo", "--max-tokens", "400", "--max-update", "5"]
    done = subprocess.run(
        words, cwd=tmp_path, env={**environment(), **SMALL}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "training on 2 devices" in done.stdout + done.stderr
    assert (tmp_path / "run" / "checkpoint_last.pt").exists()


# --- machines that the tests do not have


@pytest.fixture
def stand_ins(tmp_path):
    """Writes programs that stand in for others; returns the variables that put them first."""

    def write(**bodies):
        for name, body in bodies.items():
            path = tmp_path / "bin" / name.replace("_", "-")
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"#!/usr/bin/env bash\n{body}\n")
            path.chmod(0o755)
        path = os.pathsep.join([str(tmp_path / "bin"), environment()["PATH"]])
        return {"PATH": path, "CALLS": str(tmp_path / "calls")}

    return write


def settings_of(flags):
    """What fairseq's parser makes of the flags that train.sh passes on."""
    parsed = options.parse_args_and_arch(options.get_training_parser(), flags)
    return convert_namespace_to_omegaconf(parsed)


def test_the_flags_for_gpus_keep_the_tokens_of_an_update(tmp_path, stand_ins):
    variables = stand_ins(fairseq_train='printf "%s\\n" "$@" >"$CALLS"')
    table = re.findall(
        r"^\| (\d+) GPUs? \| `?([^`|]*)`? \|", (WMT14 / "README.md").read_text(), re.M
    )
    assert [gpus for gpus, _ in table] == ["1", "2", "4", "8", "16"]
    for gpus, flags in table:
        succeed(
            "train.sh", "roformer_base", "data", "run", *flags.split(), cwd=tmp_path, **variables
        )
        cfg = settings_of((tmp_path / "calls").read_text().splitlines())
        tokens = int(gpus) * cfg.dataset.max_tokens * cfg.optimization.update_freq[0]
        assert abs(tokens - 25000) < 50 and cfg.dataset.max_tokens < 3600
        assert cfg.common.fp16 and cfg.optimization.max_update == 100000
        assert cfg.dataset.update_epoch_batch_itr and cfg.model.share_all_embeddings
    succeed("train.sh", "x", "data", "run", "--cpu", cwd=tmp_path, **variables, PRECISION="")
    assert "--fp16" not in (tmp_path / "calls").read_text().splitlines()


@pytest.mark.parametrize("sent", [signal.SIGUSR1, signal.SIGTERM])
def test_a_job_is_requeued_when_its_time_is_up_but_not_when_it_is_cancelled(
    tmp_path, stand_ins, sent
):
    variables = stand_ins(
        srun='echo "$@" >"$CALLS.part" && mv "$CALLS.part" "$CALLS.started"; exec sleep 60',
        scontrol='echo "$@" >>"$CALLS"',
    )
    slurm = {"SLURM_JOB_ID": "123456", "SLURM_NNODES": "2", "SLURM_GPUS_ON_NODE": "4"}
    job = subprocess.Popen(
        ["bash", str(WMT14 / "train.sbatch"), "arch", "data", "run", "--lr", "1e-3"],
        env={**environment(), **variables, **slurm, "SLURM_CPUS_PER_TASK": "8"},
        cwd=tmp_path,
        start_new_session=True,
    )
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
    requeued = (tmp_path / "calls").exists()
    assert requeued == (sent == signal.SIGUSR1)
