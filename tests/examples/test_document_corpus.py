"""Published parallel documents become texts of a sentence a line, if their digests are known."""

import gzip
import hashlib
import io
import subprocess
import tarfile

import pytest
from support.recipes import EXAMPLES, bash

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


def given(tmp_path, corpus, name, content, listed=True):
    """Variables for an archive in a folder, whose digest is that in a list or not."""
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / name).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    (tmp_path / "list").write_text(f"{corpus} de-en sha256sum {digest} {name} https://localhost/\n")
    return {"RAW": "raw", **({"ARCHIVES": "list"} if listed else {})}


def texts(tmp_path):
    found = (path for path in (tmp_path / "data").iterdir() if path.is_file())
    return {path.name: path.read_text() for path in found}


def test_the_last_documents_of_news_commentary_are_held_out(tmp_path):
    lines = [f"Satz {n}.\tSentence {n}.\nMehr.\tMore.\n\n" for n in range(7)]
    content = gzip.compress("".join(lines).encode(), mtime=0)
    options = given(tmp_path, "news-commentary", "news-commentary-v14.de-en.tsv.gz", content)
    words = (CORPUS, "news-commentary")
    ended = bash(*words, "data", cwd=tmp_path, HELD_OUT="4", **options)
    assert ended.returncode == 0, ended.stderr
    found = texts(tmp_path)
    held_out = {"train": range(3), "valid": (3, 4), "test": (5, 6)}
    for split, numbers in held_out.items():
        assert found[f"{split}.en"] == "".join(f"Sentence {n}.\nMore.\n\n" for n in numbers)
        assert found[f"{split}.de"] == "".join(f"Satz {n}.\nMehr.\n\n" for n in numbers)
    again = bash(*words, "data", cwd=tmp_path, **options)
    assert (again.returncode, again.stdout) == (0, "data is there\n")
    few = bash(*words, "new", cwd=tmp_path, HELD_OUT="8", **options)
    assert few.returncode == 1 and "7 documents, not more than HELD_OUT=8" in few.stderr
    assert not (tmp_path / "new").exists()


def test_talks_and_their_two_sets(tmp_path):
    options = given(tmp_path, "ted", "2017-01-trnmted.tgz", ted())
    ended = bash(CORPUS, "ted", "data", cwd=tmp_path, **options)
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
    options = given(tmp_path, corpus, name, b"something else", listed=False)
    ended = bash(CORPUS, corpus, "data", cwd=tmp_path, **options)
    assert ended.returncode == 1 and f"raw/{name}: is not the file that" in ended.stderr
    assert not (tmp_path / "data").exists()


def test_git_knows_a_file_by_its_digest(tmp_path):
    options = given(tmp_path, "contrapro", "contrapro.json", b"choices\n")
    known = subprocess.run(
        ["git", "hash-object", "raw/contrapro.json"], cwd=tmp_path, stdout=subprocess.PIPE
    )
    entry = f"contrapro de-en git {known.stdout.decode().strip()} contrapro.json -\n"
    (tmp_path / "list").write_text(entry)
    assert bash(CORPUS, "contrapro", "data", cwd=tmp_path, **options).returncode == 0
    assert texts(tmp_path)["contrapro.json"] == "choices\n"


@pytest.mark.parametrize(
    "corpus, given, said",
    [
        ("europarl", {}, "europarl has no en and de"),
        ("news-commentary", {"TARGET": "fr"}, "news-commentary has no en and fr"),
        ("news-commentary", {"HELD_OUT": "3"}, "HELD_OUT=3: give an even number"),
        ("ted", {}, "2017-01-trnmted.tgz: no such file"),
    ],
)
def test_mistakes_are_named(tmp_path, corpus, given, said):
    ended = bash(CORPUS, corpus, "out", cwd=tmp_path, **given)
    assert ended.returncode == 1 and said in ended.stderr
    assert not (tmp_path / "out").exists()
