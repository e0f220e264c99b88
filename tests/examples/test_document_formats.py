"""Parallel documents as they are published become lines with blank lines between documents."""

import pytest
from support.recipes import recipe_module

parallel = recipe_module("document_translation", "parallel")

ENGLISH = "One.\nTwo & two.\n\nThree.\n\n"
GERMAN = "Eins.\nZwei & zwei.\n\nDrei.\n\n"
TABLE = "One.\tEins.\nTwo & two.\tZwei & zwei.\n\t\n\n \t\nThree.\tDrei.\nFour.\t\n"
TAGS = (
    '<srcset setid="x">\n<doc docid="1">\n<title>A talk</title>\n<seg id="1"> One. </seg>\n'
    '<seg id="2">Two &amp; two.</seg>\n</doc>\n<doc docid="2">\n<talkid>7</talkid>\nThree.\n'
    "</doc>\n"
)


def run(folder, *words, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    words = [str(folder / word) if "." in word or "/" in word else word for word in words]
    parallel.main(words)
    return [(folder / f"out.{lang}").read_text(encoding="utf-8") for lang in ("en", "de")]


OUT = ("out.en", "out.de")


def test_each_format(tmp_path, capsys):
    found = run(tmp_path, "tsv", "x.tsv", *OUT, files={"x.tsv": TABLE})
    assert found == [ENGLISH, GERMAN]
    assert "2 documents, 3 sentences; left out 1" in capsys.readouterr().err
    german = TAGS.replace("One.", "Eins.").replace("Two &amp; two", "Zwei &amp; zwei")
    files = {"x.en": TAGS, "x.de": german.replace("Three", "Drei")}
    assert run(tmp_path, "tagged", "x.en", "x.de", *OUT, files=files) == [ENGLISH, GERMAN]
    files = {f"d/1990/{n}.{lang}": text for n, lang, text in PARTS}
    assert run(tmp_path, "folder", "d/1990", *OUT, files=files) == [ENGLISH, GERMAN]


PARTS = [
    *((n, "en", text) for n, text in enumerate(ENGLISH.split("\n\n"))),
    *((n, "de", text) for n, text in enumerate(GERMAN.split("\n\n"))),
]


@pytest.mark.parametrize(
    "words, files, message",
    [
        (["tsv", "x.tsv", *OUT], {"x.tsv": "a b\n"}, "line 1: has no tab"),
        (["tsv", "x.tsv", *OUT], {"x.tsv": "\n\n"}, "contains no document"),
        (["tsv", "x.tsv", "x.de", *OUT], {}, "parallel.py tsv"),
        (["folder", "d/1", *OUT], {}, "has no file that ends in .en"),
        (
            ["tagged", "x.en", "x.de", *OUT],
            {"x.en": TAGS, "x.de": TAGS.replace("Three.", "Three.\nFour.")},
            "document 2 has 1 and 2 sentences",
        ),
        (
            ["folder", "d/1", *OUT],
            {"d/1/x.en": "a\n"},
            "x.de: cannot be read",
        ),
    ],
)
def test_what_is_refused(words, files, message, tmp_path):
    with pytest.raises(SystemExit, match=message):
        run(tmp_path, *words, files=files)
    assert not (tmp_path / "out.en").exists()
