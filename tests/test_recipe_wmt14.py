"""The WMT14 En-De recipe: reading the archives, batch arithmetic, Slurm, and the whole chain."""

import hashlib
import io
import json
import os
import random
import re
import shlex
import signal
import socket
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
import sacrebleu

pytest.importorskip("sacremoses", reason="the recipes need sacremoses")
pytest.importorskip("subword_nmt", reason="the recipes need subword-nmt")

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "examples" / "wmt14_en_de"
sys.path.insert(0, str(ROOT / "examples" / "common"))
sys.path.insert(0, str(RECIPE))

import extract  # noqa: E402
import moses  # noqa: E402
from sgm import read_segments  # noqa: E402

ENVIRONMENT = {
    **{k: v for k, v in os.environ.items() if not k.startswith("SLURM_")},
    "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"],
    "OMP_NUM_THREADS": "1",
}


def bash(script, *arguments, cwd, timeout=300, **environment):
    return subprocess.run(
        ["bash", str(RECIPE / script), *map(str, arguments)],
        cwd=cwd,
        env={**ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def assert_error(result, *parts):
    """The script failed, and the last line it wrote says why."""
    assert result.returncode == 1, result.stderr
    last = result.stderr.strip().split("\n")[-1]
    assert ": error: " in last and all(part in last for part in parts), result.stderr
    assert "Traceback" not in result.stderr


# --- a corpus laid out like the real one

ENGLISH = "the a cat dog house sees finds likes and old well-known small e-mail quickly today"
GERMAN = "die eine Katze Hund Haus sieht findet mag und alt wohl-bekannt klein E-Mail schnell heute"
WORDS = dict(zip(ENGLISH.split(), GERMAN.split()))


def sentence_pairs(count, seed):
    rng = random.Random(seed)
    for _ in range(count):
        words = rng.choices(sorted(WORDS), k=rng.randint(3, 9))
        yield " ".join(words) + ".", " ".join(WORDS[word] for word in words) + "."


def sgm(kind, lang, sentences):
    segments = "\n".join(
        f'<seg id="{i}">{line.replace("&", "&amp;")}</seg>' for i, line in enumerate(sentences, 1)
    )
    return (
        f'<{kind} setid="newstest" srclang="any" trglang="{lang}">\n'
        f'<doc sysid="ref" docid="one" genre="news" origlang="en">\n<p>\n{segments}\n</p>\n'
        f"</doc>\n</{kind}>\n"
    )


def tar(path, members):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            data = content if isinstance(content, bytes) else content.encode()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def plain(pairs, side):
    return "".join(pair[side] + "\n" for pair in pairs)


@pytest.fixture(scope="session")
def raw(tmp_path_factory):
    """The five archives with a few hundred made-up sentences, and a list of their digests."""
    folder = tmp_path_factory.mktemp("raw")
    europarl = list(sentence_pairs(160, 1))
    crawl = list(sentence_pairs(120, 2))
    # what the real corpora have too: gaps, breaks inside a line, pairs that do not match
    crawl += [("", "etwas"), ("the\rcat & a dog", "die\rKatze & ein\u2028Hund"), ("x " * 40, "y")]
    news = list(sentence_pairs(60, 3))
    valid, test = list(sentence_pairs(21, 4)), list(sentence_pairs(23, 5))
    test[0] = ("the cat & the dog", "die Katze & der „Hund“")
    members = {
        "training-parallel-europarl-v7": {
            "training/europarl-v7.cs-en.cs": "not wanted\n",
            "training/europarl-v7.de-en.de": plain(europarl, 1),
            "training/europarl-v7.de-en.en": plain(europarl, 0),
        },
        "training-parallel-commoncrawl": {
            "commoncrawl.de-en.annotation": "x\n",
            "commoncrawl.de-en.de": plain(crawl, 1),
            "commoncrawl.de-en.en": plain(crawl, 0),
        },
        "training-parallel-nc-v9": {
            "training/news-commentary-v9.de-en.de": plain(news, 1),
            "training/news-commentary-v9.de-en.en": plain(news, 0),
        },
        "dev": {
            "dev/newstest2013-src.en.sgm": sgm("srcset", "en", [pair[0] for pair in valid]),
            "dev/newstest2013-ref.de.sgm": sgm("refset", "de", [pair[1] for pair in valid]),
        },
        "test-full": {
            "test-full/newstest2014-deen-src.en.sgm": sgm("srcset", "en", [p[0] for p in test]),
            "test-full/newstest2014-deen-ref.de.sgm": sgm("refset", "de", [p[1] for p in test]),
        },
    }
    digests = []
    for name, content in members.items():
        archive = tar(folder / f"{name}.tgz", content)
        digests.append(f"{hashlib.sha256(archive.read_bytes()).hexdigest()}  {archive.name}\n")
    (folder / "digests").write_text("".join(digests))
    return folder


# --- reading the archives


def test_sgm_segments_in_order_as_plain_lines():
    text = (
        '<srcset>\n<doc>\n<SEG id="1"> a  &amp;amp; b </SEG>\n<seg id="2">two\nlines &lt;x&gt;'
        '</seg>\n<hl><seg id="3">&quot;q&quot;</seg></hl>\n<seg id="4"></seg></doc></srcset>'
    )
    assert read_segments(text, "x") == ["a &amp; b", "two lines <x>", '"q"', ""]
    for broken in ("", "no segments", '<seg id="1">a</seg><seg id="2">b'):
        with pytest.raises(SystemExit, match="x.sgm: . segments begin and"):
            read_segments(broken, "x.sgm")


def extract_error(archive, *members):
    outputs = [str(archive.parent / name) for name in ("one", "two")]
    before = sorted(os.listdir(archive.parent))
    with pytest.raises(SystemExit) as caught:
        extract.main([*outputs, "--from", str(archive), *members])
    assert sorted(os.listdir(archive.parent)) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_extracting_refuses_what_is_not_whole(tmp_path):
    archive = tar(tmp_path / "a.tgz", {"./x.en": "1\n2\n", "x.de": "1\n", "bad": b"\xff\n"})
    assert "x.en has 2 lines, x.de has 1" in extract_error(archive, "x.en", "x.de")
    assert "has no x.fr" in extract_error(archive, "x.en", "x.fr")
    assert "not UTF-8" in extract_error(archive, "x.en", "bad")
    whole = archive.read_bytes()
    for broken in (whole[:60], whole[:-4], whole[:-6] + b"\0" * 6, b"no archive"):
        archive.write_bytes(broken)
        assert "a.tgz: damaged" in extract_error(archive, "x.en", "x.en")
    assert "damaged" in extract_error(tmp_path / "none.tgz", "x.en", "x.de")


def test_corpora_are_joined_in_order_and_aligned(tmp_path):
    one = tar(tmp_path / "1.tgz", {"d/x.de": "A\nB", "d/x.en": "a\r\nb"})
    two = tar(tmp_path / "2.tgz", {"y.en": "c\n", "y.de": "C\n"})
    outputs = [str(tmp_path / "en"), str(tmp_path / "de")]
    corpora = ["--from", str(one), "d/x.en", "d/x.de", "--from", str(two), "y.en", "y.de"]
    extract.main([*outputs, *corpora])
    assert [Path(path).read_bytes() for path in outputs] == [b"a\r\nb\nc\n", b"A\nB\nC\n"]


# --- what the scripts would run


def commands(result):
    """The commands that a dry run printed, as lists of words."""
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if line.startswith("+ ")]
    return [shlex.split(line[2:]) for line in lines]


def flags_of(command):
    """Flags of a command and the values after them; a repeated flag keeps its last value."""
    flags = {}
    for word, following in zip(command, [*command[1:], "--"]):
        if word.startswith("--"):
            flags[word] = None if following.startswith("--") else following
    return flags


def training(cwd, *arguments, **environment):
    result = bash("train.sh", "arch", "data", "--dry-run", *arguments, cwd=cwd, **environment)
    return flags_of(commands(result)[-1])


@pytest.mark.parametrize("nodes, gpus", [(1, 1), (1, 2), (1, 4), (1, 8), (2, 4), (4, 4), (2, 8)])
def test_an_update_has_25k_tokens_whatever_the_machine(tmp_path, nodes, gpus):
    ranks = []
    for node in range(nodes):
        multi = ("--nodes", nodes, "--node-rank", node, "--init-method", "tcp://first:1")
        flags = training(tmp_path, "--gpus", gpus, *(multi if nodes > 1 else ()))
        tokens, passes = int(flags["--max-tokens"]), int(flags["--update-freq"])
        assert tokens <= 3584
        assert abs(nodes * gpus * tokens * passes - 25000) <= 2500
        assert passes == 1 or nodes * gpus * 3584 * (passes - 1) < 25000  # no needless pass
        assert flags["--distributed-world-size"] == str(nodes * gpus)
        assert "--fp16" in flags and "--cpu" not in flags
        if nodes * gpus > 1:
            first = int(flags["--distributed-rank"])
            ranks += range(first, first + gpus)
            method = flags["--distributed-init-method"]
            assert (
                method == "tcp://first:1" if nodes > 1 else re.match(r"tcp://localhost:\d", method)
            )
    if nodes * gpus > 1:
        assert ranks == list(range(nodes * gpus))
    assert os.listdir(tmp_path) == []


def test_training_is_the_papers_and_the_users_flags_come_last(tmp_path):
    flags = training(tmp_path, "--gpus", 8)
    expected = {
        "--arch": "arch",
        "--optimizer": "adam",
        "--adam-betas": "(0.9, 0.98)",
        "--lr": "5e-4",
        "--lr-scheduler": "inverse_sqrt",
        "--warmup-init-lr": "1e-7",
        "--warmup-updates": "4000",
        "--label-smoothing": "0.1",
        "--dropout": "0.1",
        "--required-batch-size-multiple": "1",
        "--user-dir": str(ROOT / "fairseq_posenc"),
        "--save-dir": "runs/wmt14_en_de/arch",
    }
    assert {name: flags.get(name) for name in expected} == expected
    assert "--share-all-embeddings" in flags
    assert int(flags["--keep-last-epochs"]) >= 5
    assert training(tmp_path, "--gpus", 8, "--", "--lr", "1e-3")["--lr"] == "1e-3"
    cpu = training(tmp_path, "--cpu", "--tokens-per-batch", 300)
    assert "--cpu" in cpu and "--fp16" not in cpu and cpu["--max-tokens"] == "300"


@pytest.mark.parametrize(
    "arguments, environment, parts",
    [
        (("arch",), {}, ["--help"]),
        (("arch", "data", "more"), {}, ["more", "--"]),
        (("arch", "data", "--lr", "1"), {}, ["--lr", "after --"]),
        (("arch", "data", "--gpus"), {}, ["--gpus needs a value"]),
        (("arch", "data", "--gpus", "two"), {}, ["--gpus two"]),
        (("arch", "data", "--gpus", "4"), {}, ["data", "prepare.sh"]),
        (("arch", "data", "--dry-run", "--gpus", "4", "--nodes", "2"), {}, ["--init-method"]),
        (("arch", "data", "--nodes", "2", "--node-rank", "2"), {}, ["--node-rank 2"]),
        (("arch", "data", "--dry-run", "--gpus", "128"), {}, ["195 tokens"]),
        (("arch", "data", "--slurm"), {}, ["srun"]),
        (
            ("arch", "data", "--dry-run", "--gpus", "4"),
            {"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "x"},
            ["torchrun"],
        ),
    ],
)
def test_training_mistakes_are_one_line(tmp_path, arguments, environment, parts):
    assert_error(bash("train.sh", *arguments, cwd=tmp_path, **environment), *parts)
    assert os.listdir(tmp_path) == []


def test_other_mistakes_are_one_line(tmp_path, raw):
    folder = tmp_path / "empty"
    folder.mkdir()
    assert_error(bash("prepare.sh", cwd=tmp_path), "folder")
    assert_error(bash("prepare.sh", "out", "--raw", "none", cwd=tmp_path), "--raw none")
    assert_error(bash("prepare.sh", "out", "--raw", folder, cwd=tmp_path), "europarl-v7.tgz")
    assert_error(bash("prepare.sh", "out", "--bpe-operations", "x", cwd=tmp_path), "x")
    assert_error(bash("prepare.sh", "out", "--ratio", "-1", cwd=tmp_path), "--ratio -1")
    assert_error(bash("prepare.sh", "out", "--checksums", "none", cwd=tmp_path), "none")
    # made-up archives are not the published ones
    assert_error(bash("prepare.sh", "out", "--raw", raw, cwd=tmp_path), "europarl", "0224c7c7")
    assert_error(bash("evaluate.sh", "data", cwd=tmp_path), "--help")
    assert_error(bash("evaluate.sh", folder, folder, cwd=tmp_path), "prepare.sh")
    assert_error(bash("evaluate.sh", "a", "b", "--subset", "x", cwd=tmp_path), "--subset x")
    assert_error(bash("train.sbatch", "arch", "data", cwd=tmp_path), "sbatch")
    assert os.listdir(tmp_path) == ["empty"]


def test_a_dry_run_of_everything_leaves_nothing_behind(tmp_path):
    prepared = commands(bash("prepare.sh", "out", "--dry-run", cwd=tmp_path))
    urls = [command[-1] for command in prepared if command[0] == "curl"]
    assert [url.rsplit("/", 1)[1] for url in urls] == [
        "training-parallel-europarl-v7.tgz",
        "training-parallel-commoncrawl.tgz",
        "training-parallel-nc-v9.tgz",
        "dev.tgz",
        "test-full.tgz",
    ]
    learned = [flags_of(command) for command in prepared if "learn" in command]
    assert learned[0]["--operations"] == "32000"
    evaluated = commands(bash("evaluate.sh", "data", "ckpt", "--dry-run", cwd=tmp_path))
    average, generate = flags_of(evaluated[0]), flags_of(evaluated[1])
    assert average["--num-epoch-checkpoints"] == "5" and average["--inputs"] == "ckpt"
    assert generate["--path"] == average["--output"]
    assert generate["--beam"] == "4" and generate["--lenpen"] == "0.6"
    assert generate["--required-batch-size-multiple"] == "1"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("script", ["prepare.sh", "train.sh", "train.sbatch", "evaluate.sh"])
def test_help_names_every_option(tmp_path, script):
    result = bash(script, "--help", cwd=tmp_path)
    assert result.returncode == 0 and script in result.stdout
    taken = re.findall(r"^ +(--[a-z-]+)\) ", (RECIPE / script).read_text(), re.MULTILINE)
    assert taken and all(option in result.stdout for option in taken if option != "--")


# --- Slurm

SRUN = """#!/usr/bin/env bash
while [[ $1 == --* ]]; do shift; done
for ((SLURM_NODEID = 0; SLURM_NODEID < SLURM_NNODES; SLURM_NODEID++)); do
    SLURM_NODEID=$SLURM_NODEID "$@"
done
"""
SCONTROL = """#!/usr/bin/env bash
if [[ $1 == show ]]; then printf 'node-a\\nnode-b\\n'; else echo "$@" >>"$CALLS"; fi
"""


@pytest.fixture
def slurm(tmp_path):
    """Stand-ins for srun and scontrol, and a job of two nodes in the environment."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, body in (("srun", SRUN), ("scontrol", SCONTROL)):
        (programs / name).write_text(body)
        (programs / name).chmod(0o755)
    return {
        "PATH": f"{programs}{os.pathsep}{ENVIRONMENT['PATH']}",
        "CALLS": str(tmp_path / "calls"),
        "SLURM_JOB_ID": "123456",
        "SLURM_NNODES": "2",
        "SLURM_JOB_NODELIST": "node-[a-b]",
        "RECIPE_DIR": str(RECIPE),
    }


def spooled(tmp_path):
    """Where Slurm would put its copy of the job script, away from the recipe."""
    copy = tmp_path / "slurm_script"
    copy.write_bytes((RECIPE / "train.sbatch").read_bytes())
    return copy


def test_slurm_starts_one_training_over_all_nodes(tmp_path, slurm):
    def job(**environment):
        flags = ("arch", "data", "--gpus", "4", "--dry-run", "--", "--lr", "1e-3")
        result = bash(spooled(tmp_path), *flags, cwd=tmp_path, **{**slurm, **environment})
        return [flags_of(command) for command in commands(result) if "fairseq-train" in command]

    nodes = job()
    assert [node["--distributed-rank"] for node in nodes] == ["0", "4"]
    assert {node["--distributed-world-size"] for node in nodes} == {"8"}
    assert {node["--lr"] for node in nodes} == {"1e-3"}
    addresses = {node["--distributed-init-method"] for node in nodes}
    assert len(addresses) == 1
    host, port = re.fullmatch(r"tcp://(.*):(\d+)", addresses.pop()).groups()
    assert host == "node-a" and 1024 < int(port) < 32768
    others = {job(SLURM_JOB_ID="123457")[0]["--distributed-init-method"]}
    others.add(job(SLURM_RESTART_COUNT="7")[0]["--distributed-init-method"])
    assert len(others) == 2 and f"tcp://node-a:{port}" not in others


@pytest.mark.parametrize("sent, requeued", [(signal.SIGUSR1, True), (signal.SIGTERM, False)])
def test_slurm_signals(tmp_path, slurm, sent, requeued):
    """Time is nearly up: requeue. Preempted or cancelled: only stop."""
    stopped = tmp_path / "stopped"
    srun = f"#!/usr/bin/env bash\ntrap 'touch {stopped}; exit 143' TERM\ntouch {tmp_path}/started\n"
    (tmp_path / "bin" / "srun").write_text(srun + "sleep 60 &\nwait\n")
    job = subprocess.Popen(
        ["bash", str(spooled(tmp_path)), "arch", "data"],
        env={**ENVIRONMENT, **slurm},
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.time() + 20
    while not (tmp_path / "started").exists() and time.time() < deadline:
        time.sleep(0.05)
    job.send_signal(sent)
    assert job.wait(timeout=20) != 0
    assert stopped.exists()
    calls = tmp_path / "calls"
    assert (calls.read_text() if calls.exists() else "") == "requeue 123456\n" * requeued


def test_slurm_gives_the_status_of_the_training(tmp_path, slurm):
    for status in (0, 3):
        (tmp_path / "bin" / "srun").write_text(f"#!/usr/bin/env bash\nexit {status}\n")
        result = bash(spooled(tmp_path), "arch", "data", cwd=tmp_path, **slurm)
        assert result.returncode == status


def test_slurm_without_the_recipe_says_what_to_set(tmp_path, slurm):
    del slurm["RECIPE_DIR"]
    result = bash(spooled(tmp_path), "arch", "data", cwd=tmp_path, **slurm)
    assert_error(result, "RECIPE_DIR")


# --- the whole chain

TINY_ARCH = "roformer_tiny"


@pytest.fixture(scope="session")
def prepared(raw, tmp_path_factory):
    """prepare.sh over the made-up corpus."""
    folder = tmp_path_factory.mktemp("wmt14")
    result = prepare(folder, raw)
    assert result.returncode == 0, result.stderr
    return folder / "out"


def prepare(folder, raw, *more):
    flags = ["--raw", raw, "--checksums", raw / "digests", "--bpe-operations", 60, "--workers", 2]
    return bash("prepare.sh", "out", *flags, *more, cwd=folder)


def train(data, folder, updates, *more):
    flags = ["--cpu", "--save-dir", folder, "--tokens-per-batch", 400, *more]
    extra = ["--max-update", updates, "--log-interval", 1, "--save-interval-updates", 0]
    return bash("train.sh", TINY_ARCH, data, *flags, "--", *extra, cwd=folder.parent)


def test_the_whole_chain(prepared, tmp_path):
    # prepare: nothing lost but what cleaning drops, valid and test untouched in number
    lines = {
        path: (prepared / path).read_bytes().decode().count("\n")
        for path in ("plain/train.en", "bpe/train.de", "bpe/clean.en", "bpe/clean.de")
        + ("bpe/valid.en", "bpe/test.de", "data-bin/reference.test.de")
    }
    assert lines["plain/train.en"] == lines["bpe/train.de"] == 343
    assert lines["bpe/clean.en"] == lines["bpe/clean.de"] == 341
    assert (lines["bpe/valid.en"], lines["bpe/test.de"]) == (21, 23)
    assert lines["data-bin/reference.test.de"] == 23
    reference = (prepared / "data-bin" / "reference.test.de").read_text().splitlines()
    tokenized = (prepared / "data-bin" / "reference.test.tok.de").read_text().splitlines()
    assert reference[0] == "die Katze & der „Hund“"
    assert tokenized[0] == "die Katze &amp; der &quot; Hund &quot;"
    assert " @-@ " in "".join(tokenized)
    dictionaries = [
        (prepared / "data-bin" / f"dict.{lang}.txt").read_bytes() for lang in ("en", "de")
    ]
    assert dictionaries[0] == dictionaries[1]

    data, checkpoints = prepared / "data-bin", tmp_path / "checkpoints"
    trained = train(data, checkpoints, 20)
    assert trained.returncode == 0, trained.stderr
    resumed = train(data, checkpoints, 34)
    assert resumed.returncode == 0, resumed.stderr
    assert "num_updates 20" in trained.stdout and "num_updates 34" in resumed.stdout
    assert "@ 20 updates" in resumed.stdout and "num_updates 20" not in resumed.stdout

    flags = ["--average", 2, "--cpu", "--", "--max-len-b", 20]
    evaluated = bash("evaluate.sh", data, checkpoints, *flags, cwd=tmp_path)
    assert evaluated.returncode == 0, evaluated.stderr
    generated = (checkpoints / "evaluate-test" / "generate-test.txt").read_text().splitlines()
    best = {line.split("\t")[0]: line.split("\t")[2] for line in generated if line[:2] == "H-"}
    translations = [best[f"H-{i}"] for i in range(23)]
    assert len(best) == 23 and "@@" not in "".join(translations)
    detokenized = [moses.detokenizer("de")(line) for line in translations]
    scores = json.loads((checkpoints / "evaluate-test" / "scores.json").read_text())
    names = ["tokenized BLEU", "compound-split BLEU", "sacreBLEU"]
    assert [entry["name"] for entry in scores] == names
    assert scores[2]["score"] == sacrebleu.corpus_bleu(detokenized, [reference]).score
    for line, entry in zip(evaluated.stdout.splitlines()[-3:], scores):
        assert line.startswith(entry["name"]) and f"{entry['score']:.2f}" in line
        assert entry["hypotheses"] == 23 and entry["signature"] in line


def test_preparing_again_does_only_what_changed(prepared, raw):
    again = prepare(prepared.parent, raw)
    assert again.returncode == 0
    assert "fairseq-preprocess" not in again.stderr and "moses.py" not in again.stderr
    codes = (prepared / "bpe" / "codes").read_bytes()
    more = prepare(prepared.parent, raw, "--ratio", "1.6")
    assert more.returncode == 0
    assert "clean.py" in more.stderr and "fairseq-preprocess" in more.stderr
    assert "bpe.py" not in more.stderr and (prepared / "bpe" / "codes").read_bytes() == codes


@pytest.mark.slow
def test_two_nodes_train_one_model(prepared, tmp_path):
    """Two processes over gloo, started as on two nodes, agree on every loss."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data, jobs = prepared / "data-bin", []
    for node in (1, 0):
        flags = ["--cpu", "--save-dir", "both", "--tokens-per-batch", "400", "--nodes", "2"]
        flags += ["--node-rank", str(node), "--init-method", f"tcp://127.0.0.1:{port}"]
        extra = ["--max-update", "5", "--log-interval", "1", "--dropout", "0"]
        jobs.append(
            subprocess.Popen(
                ["bash", str(RECIPE / "train.sh"), TINY_ARCH, str(data), *flags, "--", *extra],
                cwd=tmp_path,
                env=ENVIRONMENT,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    outputs = [job.communicate(timeout=240)[0] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], outputs
    assert "training on 2 devices" in outputs[1]
    assert "num_updates 5" in outputs[1]
