"""Published parallel documents become texts of a sentence a line, if their digests are known."""

import gzip
import hashlib
import io
import subprocess
import tarfile

import pytest
from support.recipes import EXAMPLES, assert_error, bash

CORPUS = EXAMPLES / "document_translation" / "corpus.sh"
TALK = '<doc docid="{0}">\n<url>x</url>\n<title>T</title>\nIt is {0}.\n{1}\n</doc>\n'
SEGMENTS = '<doc docid="1">\n<seg id="1"> {} &amp; more </seg>\n</doc>\n'


def archive(files):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


def ted():
    inner = "DeEnItNlRo-DeEnItNlRo"
    files = {}
    for lang in ("en", "de"):
        files[f"{inner}/train.tags.en-de.{lang}"] = TALK.format(1, lang) + TALK.format(2, lang)
        files[f"{inner}/IWSLT17.TED.dev2010.en-de.{lang}.xml"] = SEGMENTS.format(f"dev {lang}")
        files[f"{inner}/IWSLT17.TED.tst2010.en-de.{lang}.xml"] = SEGMENTS.format(f"tst {lang}")
    whole = archive({name: text.encode() for name, text in files.items()})
    return archive({f"2017-01-trnmted/texts/DeEnItNlRo/DeEnItNlRo/{inner}.tgz": whole})


def given(tmp_path, name, content, listed=True):
    """Options for an archive in a folder, whose digest is in a list or not."""
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / name).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    (tmp_path / "list").write_text(f"{digest}  {name}\n")
    return ["--raw", "raw"] + ["--checksums", "list"] * listed


def texts(tmp_path):
    return {path.name: path.read_text() for path in (tmp_path / "data").iterdir()}


def test_the_last_documents_of_news_commentary_are_held_out(tmp_path):
    lines = [f"Satz {n}.\tSentence {n}.\nMehr.\tMore.\n\n" for n in range(7)]
    content = gzip.compress("".join(lines).encode(), mtime=0)
    options = given(tmp_path, "news-commentary-v14.de-en.tsv.gz", content)
    ended = bash(CORPUS, "news-commentary", "data", *options, "--held-out", "4", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    found = texts(tmp_path)
    held_out = {"train": range(3), "valid": (3, 4), "test": (5, 6)}
    for split, numbers in held_out.items():
        assert found[f"{split}.en"] == "".join(f"Sentence {n}.\nMore.\n\n" for n in numbers)
        assert found[f"{split}.de"] == "".join(f"Satz {n}.\nMehr.\n\n" for n in numbers)
    again = bash(CORPUS, "news-commentary", "data", *options, cwd=tmp_path)
    assert_error(again, "data: already exists")
    few = bash(CORPUS, "news-commentary", "new", *options, "--held-out", "8", cwd=tmp_path)
    assert_error(few, "7 documents", "--held-out 8")
    assert not (tmp_path / "new").exists()


def test_talks_and_their_two_sets(tmp_path):
    options = given(tmp_path, "2017-01-trnmted.tgz", ted())
    ended = bash(CORPUS, "ted", "data", *options, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    found = texts(tmp_path)
    assert found["train.en"] == "It is 1.\nen\n\nIt is 2.\nen\n\n"
    assert found["train.de"] == "It is 1.\nde\n\nIt is 2.\nde\n\n"
    assert found["valid.de"] == "dev de & more\n\n" and found["test.en"] == "tst en & more\n\n"


@pytest.mark.parametrize(
    "corpus, name",
    [
        ("news-commentary", "news-commentary-v14.de-en.tsv.gz"),
        ("ted", "2017-01-trnmted.tgz"),
        ("contrapro", "contrapro.json"),
    ],
)
def test_another_file_than_the_published_one_is_refused(tmp_path, corpus, name):
    options = given(tmp_path, name, b"something else", listed=False)
    ended = bash(CORPUS, corpus, "data", *options, cwd=tmp_path)
    assert_error(ended, f"{name} has ", "but the recipe says")
    assert not (tmp_path / "data").exists()


def test_git_knows_a_file_by_its_digest(tmp_path):
    content = b"choices\n"
    (tmp_path / "file").write_bytes(content)
    known = subprocess.run(["git", "hash-object", "file"], cwd=tmp_path, stdout=subprocess.PIPE)
    digest = known.stdout.decode().strip()
    script = f'. {EXAMPLES}/common/steps.sh; . {EXAMPLES}/common/digests.sh; verify file "$1"'
    for changed, status in (("", 0), ("0", 1)):
        words = ["bash", "-c", script, "verify", f"git:{digest}{changed}"]
        assert subprocess.run(words, cwd=tmp_path).returncode == status
