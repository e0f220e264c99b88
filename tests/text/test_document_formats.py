"""Parallel documents as they are published become lines with blank lines between documents."""

import pytest

from fairseq_posenc import cli
from fairseq_posenc.basics.errors import UsageError

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
    cli.main(["parallel-documents", *words])
    return [(folder / f"out.{lang}").read_text(encoding="utf-8") for lang in ("en", "de")]


OUT = ("out.en", "out.de")


def test_each_format(tmp_path, capsys):
    found = run(tmp_path, "tsv", "x.tsv", *OUT, files={"x.tsv": TABLE})
    assert found == [ENGLISH, GERMAN]
    assert "2 documents, 3 sentences; 1 without text on a side" in capsys.readouterr().err
    german = TAGS.replace("One.", "Eins.").replace("Two &amp; two", "Zwei &amp; zwei")
    files = {"x.en": TAGS, "x.de": german.replace("Three", "Drei")}
    assert run(tmp_path, "tagged", "x.en", "x.de", *OUT, files=files) == [ENGLISH, GERMAN]
    files = {f"d/1990/{n}.{lang}": text for n, lang, text in PARTS}
    flags = ["--source-lang", "en", "--target-lang", "de"]
    assert run(tmp_path, "folder", "d/1990", *OUT, *flags, files=files) == [ENGLISH, GERMAN]


PARTS = [
    *((n, "en", text) for n, text in enumerate(ENGLISH.split("\n\n"))),
    *((n, "de", text) for n, text in enumerate(GERMAN.split("\n\n"))),
]


@pytest.mark.parametrize(
    "words, files, message",
    [
        (["tsv", "x.tsv", *OUT], {"x.tsv": "a b\n"}, "line 1: has no tab"),
        (["tsv", "x.tsv", *OUT], {"x.tsv": "\n\n"}, "contains no document"),
        (["tsv", "x.tsv", "x.de", *OUT], {}, "give 1 of INPUT"),
        (["tsv", "x.tsv"], {}, "give 1 of INPUT"),
        (["xml", "x.tsv", *OUT], {}, "unknown; give tsv, tagged, folder"),
        (["folder", "d/1", *OUT], {}, "give --source-lang and --target-lang"),
        (
            ["tagged", "x.en", "x.de", *OUT],
            {"x.en": TAGS, "x.de": TAGS.replace("Three.", "Three.\nFour.")},
            "document 2 has 1 and 2 sentences",
        ),
        (
            ["folder", "d/1", *OUT, "--source-lang", "en", "--target-lang", "de"],
            {"d/1/x.en": "a\n"},
            "x.de: no such file",
        ),
    ],
)
def test_what_is_refused(words, files, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        run(tmp_path, *words, files=files)
    assert not (tmp_path / "out.en").exists()
