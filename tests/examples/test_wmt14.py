"""The WMT14 En-De recipe: reading the archives, and the whole chain on a made-up corpus."""

import hashlib
import io
import json
import os
import random
import socket
import subprocess
import tarfile
from pathlib import Path

import pytest
import sacrebleu
from support.recipes import WMT14, assert_error, bash, environment, recipe_module, succeed

from fairseq_posenc.basics.lines import read_lines
from fairseq_posenc.text.words import joiner_of

extract = recipe_module("wmt14_en_de", "extract")


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
def raw(once):
    """The five archives with a few hundred made-up sentences, and a list of their digests."""
    return once("raw", _archives)


def _archives(folder):
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


def test_sgm_segments_in_order_as_plain_lines():
    text = (
        '<srcset>\n<doc>\n<SEG id="1"> a  &amp;amp; b </SEG>\n<seg id="2">two\nlines &lt;x&gt;'
        '</seg>\n<hl><seg id="3">&quot;q&quot;</seg></hl>\n<seg id="4"></seg></doc></srcset>'
    )
    assert extract.read_segments(text, "x") == ["a &amp; b", "two lines <x>", '"q"', ""]
    for broken in ("", "no segments", '<seg id="1">a</seg><seg id="2">b'):
        with pytest.raises(SystemExit, match="x.sgm: . segments begin, but only"):
            extract.read_segments(broken, "x.sgm")


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


TINY_ARCH = "roformer_tiny"


@pytest.fixture(scope="session")
def prepared(raw, once):
    """What prepare.sh made of the made-up corpus: with another ratio, as usual, and once more.

    The files messages-changed and messages-again hold what the second and third run printed.
    """

    def make(folder):
        for name, flags in (("first", ["--ratio", "1.6"]), ("changed", []), ("again", [])):
            result = prepare(folder, raw, *flags)
            assert result.returncode == 0, result.stderr
            (folder / f"messages-{name}").write_text(result.stderr)
            written = (folder / "out" / "subwords" / "bpe.codes").stat().st_mtime_ns
            (folder / f"codes-{name}").write_text(str(written))

    return once("wmt14", make) / "out"


def prepare(folder, raw, *more):
    flags = ["--raw", raw, "--checksums", raw / "digests", "--bpe-operations", 60, "--workers", 1]
    return bash("prepare.sh", "out", *flags, *more, cwd=folder)


def train(data, folder, updates, *more):
    flags = ["--cpu", "--save-dir", folder, "--tokens-per-batch", 400, *more]
    extra = ["--max-update", updates, "--log-interval", 1, "--save-interval-updates", 4]
    return bash("train.sh", TINY_ARCH, data, *flags, "--", *extra, cwd=folder.parent)


def test_the_whole_chain(prepared, tmp_path):
    # prepare: nothing lost but what cleaning drops, valid and test untouched in number
    lines = {
        path: len(list(read_lines(prepared / path)))
        for path in ("plain/train.en.gz", "subwords/train.de.gz", "clean/train.en")
        + ("clean/train.de", "subwords/valid.en", "subwords/test.de", "data-bin/reference.test.de")
    }
    assert lines["plain/train.en.gz"] == lines["subwords/train.de.gz"] == 343
    assert lines["clean/train.en"] == lines["clean/train.de"] == 341
    assert (lines["subwords/valid.en"], lines["subwords/test.de"]) == (21, 23)
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
    trained = train(data, checkpoints, 6)
    assert trained.returncode == 0, trained.stderr
    resumed = train(data, checkpoints, 10)
    assert resumed.returncode == 0, resumed.stderr
    assert "num_updates 6" in trained.stdout and "num_updates 10" in resumed.stdout
    assert "@ 6 updates" in resumed.stdout and "num_updates 6" not in resumed.stdout

    # the average is of the checkpoints after 4 and 8 of 10 updates
    flags = ["--average", 2, "--no-model", "--cpu", "--", "--max-len-b", 20]
    evaluated = succeed("evaluate.sh", data, checkpoints, *flags, cwd=tmp_path)
    generated = (checkpoints / "evaluate-test" / "generate-test.txt").read_text().splitlines()
    best = {line.split("\t")[0]: line.split("\t")[2] for line in generated if line[:2] == "H-"}
    translations = [best[f"H-{i}"] for i in range(23)]
    assert len(best) == 23 and "@@" not in "".join(translations)
    detokenized = [joiner_of("moses", "de")(line.split()) for line in translations]
    scores = json.loads((checkpoints / "evaluate-test" / "scores.json").read_text())
    names = ["tokenized BLEU", "compound-split BLEU", "sacreBLEU", "chrF2", "TER"]
    assert [entry["name"] for entry in scores] == names
    assert scores[2]["score"] == sacrebleu.corpus_bleu(detokenized, [reference]).score
    for line, entry in zip(evaluated.stdout.splitlines()[-len(names) :], scores):
        assert line.startswith(entry["name"]) and f"{entry['score']:.2f}" in line
        assert entry["hypotheses"] == 23 and entry["signature"] in line


def test_archives_other_than_the_published_ones_are_refused(raw, tmp_path):
    result = bash("prepare.sh", "out", "--raw", raw, cwd=tmp_path)
    assert_error(result, "training-parallel-europarl-v7.tgz", "sha256:0224c7c7")
    assert os.listdir(tmp_path / "out") == [".lock"]


def test_preparing_again_does_only_what_changed(prepared):
    first, changed, again = (
        (prepared.parent / f"messages-{name}").read_text() for name in ("first", "changed", "again")
    )
    assert all(
        part in first
        for part in ("tokenize moses", "learn-subwords", "posenc clean", "fairseq-preprocess")
    )
    assert "fairseq-preprocess" not in again and "tokenize moses" not in again
    assert "posenc clean" in changed and "fairseq-preprocess" in changed
    assert "learn-subwords" not in changed
    codes = {(prepared.parent / f"codes-{name}").read_text() for name in ("first", "again")}
    assert len(codes) == 1  # the time at which the codes were written


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
                ["bash", str(WMT14 / "train.sh"), TINY_ARCH, str(data), *flags, "--", *extra],
                cwd=tmp_path,
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    outputs = [job.communicate(timeout=240)[0] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], outputs
    assert "training on 2 devices" in outputs[1]
    assert "num_updates 5" in outputs[1]
