"""What translation recipes learn subwords, score and compare systems with, called directly."""

import json
import random
import sys
import types

import pytest
import sacrebleu
from support.recipes import error_of, recipe_module, write

from fairseq_posenc.basics.lines import read_lines

pytest.importorskip("sentencepiece", reason="the recipes need sentencepiece")

compare = recipe_module("common", "compare")
score = recipe_module("common", "score")


# --- scores


@pytest.fixture
def translations():
    """A reference, a good translation and a bad one."""
    draw = random.Random(4)
    words = "der die das Haus E-Mail läuft schnell heute und nicht Tür".split()
    reference = [" ".join(draw.choices(words, k=12)) + "." for _ in range(20)]

    def changed(part):
        return [
            " ".join(draw.choice(words) if draw.random() < part else w for w in line.split())
            for line in reference
        ]

    return reference, changed(0.2), changed(0.5)


def generated(path, lines):
    return write(path, [f"H-{index}\t-1.0\t{line}" for index, line in enumerate(lines)])


def test_scores_are_those_of_sacrebleu_and_are_kept(translations, tmp_path, capsys):
    reference, good, _ = translations
    given = ["--lang", "de", "--tokenizer", "none", "--reference", write(tmp_path / "r", reference)]
    kept = {name: str(tmp_path / name) for name in ("hypotheses", "json", "text")}
    flags = [word for name, path in kept.items() for word in (f"--{name}", path)]
    score.main([*given, *flags, generated(tmp_path / "g", good)])
    found = json.loads((tmp_path / "json").read_text())
    expected = [
        sacrebleu.corpus_bleu(good, [reference]).score,
        sacrebleu.corpus_chrf(good, [reference]).score,
        sacrebleu.corpus_ter(good, [reference]).score,
    ]
    assert [entry["score"] for entry in found] == expected
    assert [entry["name"] for entry in found] == ["sacreBLEU", "chrF2", "TER"]
    assert list(read_lines(kept["hypotheses"])) == good
    printed = capsys.readouterr().out
    assert printed == (tmp_path / "text").read_text() and "tok:13a" in printed
    wrong = [*given, "--bleu-tokenizer", "nothing", str(tmp_path / "g")]
    assert "--bleu-tokenizer nothing" in error_of(score.main, wrong)


def test_chinese_is_split_by_characters():
    bleu, _, ter = score.text_scores(["我爱你"], ["我爱他"], "zh")
    assert "tok:zh" in bleu.signature
    assert ter.score == pytest.approx(100 / 3) and "asian:yes" in ter.signature


def test_comet_is_asked_only_on_request(translations, tmp_path, monkeypatch):
    reference, good, _ = translations
    flags = ["--lang", "de", "--tokenizer", "none", "--reference", write(tmp_path / "r", reference)]
    flags += ["--json", str(tmp_path / "json"), "--comet", "some/model"]
    hypotheses = generated(tmp_path / "g", good)
    assert "--source" in error_of(score.main, [*flags, hypotheses])
    flags += ["--source", write(tmp_path / "s", map(str.upper, reference))]
    monkeypatch.setitem(sys.modules, "comet", None)
    assert "pip install unbabel-comet" in error_of(score.main, [*flags, hypotheses])

    class Model:
        def predict(self, triples, batch_size):
            assert [t["src"] for t in triples] == [line.upper() for line in reference]
            assert [t["mt"] for t in triples] == good
            return types.SimpleNamespace(system_score=0.75)

    package = types.ModuleType("comet")
    package.download_model = lambda name: f"downloaded {name}"
    package.load_from_checkpoint = lambda path: (path == "downloaded some/model") and Model()
    monkeypatch.setitem(sys.modules, "comet", package)
    score.main([*flags, hypotheses])
    entry = json.loads((tmp_path / "json").read_text())[-1]
    assert (entry["name"], entry["score"]) == ("COMET", 0.75) and "some/model" in entry["signature"]


# --- comparisons


@pytest.fixture
def systems(translations, tmp_path):
    """Folders as evaluate.sh writes them: a good system, a bad one, the good one again."""
    reference, good, bad = translations
    folders = []
    for name, lines in (("good", good), ("bad", bad), ("again", good)):
        folder = tmp_path / name / "evaluate-test"
        folder.mkdir(parents=True)
        given = ["--reference", write(folder / "reference.txt", reference), "--tokenizer", "none"]
        kept = [
            "--hypotheses",
            str(folder / "hypotheses.txt"),
            "--json",
            str(folder / "scores.json"),
        ]
        score.main(["--lang", "de", *given, *kept, generated(folder / "generated", lines)])
        folders.append(str(folder))
    return folders


FEW = ["--samples", "100", "--trials", "100"]


def test_a_worse_system_is_told_from_one_that_is_the_same(systems, tmp_path, capsys):
    compare.main([*FEW, "--output", str(tmp_path / "out"), *systems])
    assert capsys.readouterr().out.endswith((tmp_path / "out" / "compare.txt").read_text())
    found = json.loads((tmp_path / "out" / "compare.json").read_text())
    good, bad, again = found["systems"]
    assert [system["name"] for system in found["systems"]] == ["good", "bad", "again"]
    for metric in ("sacreBLEU", "chrF2", "TER"):
        assert good[metric]["p"] == {"bs": None, "ar": None}
        assert all(p < 0.02 for p in bad[metric]["p"].values())
        assert again[metric]["p"] == {"bs": 1, "ar": 1}
        assert again[metric]["score"] == good[metric]["score"]
        assert good[metric]["interval"] > 0
    assert good["sacreBLEU"]["score"] > bad["sacreBLEU"]["score"]
    assert found["signatures"]["ar"]["TER"].count("seed:12345")
    table = (tmp_path / "out" / "compare.md").read_text().split("\n\n")[0].split("\n")
    assert len(table) == 2 + 3 and {row.count("|") for row in table} == {11}
    assert f"{bad['TER']['score']:.2f} ± " in table[3]


def test_the_seed_decides(translations):
    reference, good, bad = translations
    # the better half of one, the worse of the other: a small difference
    mixed = [*good[:10], *bad[10:12], *reference[12:]]
    named = [compare.System("x", lines, reference, {}) for lines in (good, mixed)]
    metrics = {"chrF2": score.CHRF()}

    def entry(seed):
        return compare.compare(named, metrics, {"bs": 99, "ar": 99}, seed)[0][1]["chrF2"]

    assert entry(1) == entry(1) and entry(1).interval != entry(2).interval


def test_what_cannot_be_compared_is_one_line(systems, tmp_path):
    assert "two folders" in error_of(compare.main, systems[:1])
    assert "one folder twice" in error_of(compare.main, [systems[0], systems[0]])
    assert "--trials 0" in error_of(compare.main, ["--trials", "0", *systems])
    other = tmp_path / "bad" / "evaluate-test"
    lines = list(read_lines(str(other / "reference.txt")))
    write(other / "reference.txt", ["x", *lines[1:]])
    assert "good and bad have different references" in error_of(compare.main, systems)
    write(other / "reference.txt", lines)
    scores = (other / "scores.json").read_text()
    (other / "scores.json").write_text(scores.replace("tok:13a", "tok:char"))
    assert "scored in different ways" in error_of(compare.main, systems)
    (other / "scores.json").write_text("[]")
    assert "run evaluate.sh again" in error_of(compare.main, systems)
    (other / "scores.json").unlink()
    assert "has no scores.json" in error_of(compare.main, systems)


@pytest.mark.parametrize(
    "folders, names",
    [
        (["a/evaluate-test", "b/evaluate-test"], ["a", "b"]),
        (["runs/a", "./runs/b/"], ["a", "b"]),
        (["x/a/e", "y/a/e", "y/b/e"], ["x/a", "y/a", "y/b"]),
    ],
)
def test_systems_have_short_names(folders, names):
    assert compare.names_of(folders) == names
