"""What translation recipes score and compare systems with, called directly."""

import json
import math
import random
import sys
import types
from collections import Counter

import pytest
import sacrebleu
from support.commands import Command
from support.recipes import COMMON, error_of, recipe_module, write

from fairseq_posenc.basics.lines import read_lines
from fairseq_posenc.text.words import joiner_of, words_of

pytest.importorskip("sentencepiece", reason="the recipes need sentencepiece")

compare = recipe_module("common", "compare")
score = recipe_module("common", "score")


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


def moses_words(line, dash_splits=True):
    return " ".join(words_of("moses", "de", dash_splits)(line))


def test_dash_splits_are_undone_by_join_dashes():
    sentence = "Ein gut-gemeinter E-Mail-Test kostet 3,50 Euro (z.B. hier)."
    split, whole = moses_words(sentence), moses_words(sentence, False)
    assert " @-@ " in split and "@-@" not in whole
    assert score.join_dashes(split) == whole


def split_by_scanning(line):
    """Compound splitting by walking over the characters, as a second opinion."""
    result, i = "", 0
    while i < len(line):
        three = line[i : i + 3]
        if len(three) == 3 and three[1] == "-" and " " not in three:
            result += f"{three[0]} ##AT##-##AT## {three[2]}"
            i += 3
        else:
            result += line[i]
            i += 1
    return result


def test_compound_splitting():
    rng = random.Random(3)
    for _ in range(2000):
        line = "".join(rng.choices("ab- ", weights=[4, 4, 3, 2], k=rng.randint(0, 12)))
        assert score.split_compounds(line) == split_by_scanning(line)
    assert score.split_compounds("rich-text format") == "rich ##AT##-##AT## text format"
    assert score.split_compounds("- a - b -c d-") == "- a - b -c d-"
    assert score.split_compounds("a-b-c aa-bb-cc") == (
        "a ##AT##-##AT## b-c aa ##AT##-##AT## bb ##AT##-##AT## cc"
    )


def plain_bleu(hypotheses, references):
    """Corpus BLEU from its definition (Papineni et al. 2002), in double precision."""
    matches, totals = [0] * 4, [0] * 4
    lengths = [0, 0]
    for hypothesis, reference in zip(hypotheses, references):
        sides = hypothesis.split(), reference.split()
        lengths = [total + len(side) for total, side in zip(lengths, sides)]
        for n in range(1, 5):
            grams = [Counter(tuple(s[i : i + n]) for i in range(len(s) - n + 1)) for s in sides]
            matches[n - 1] += sum((grams[0] & grams[1]).values())
            totals[n - 1] += sum(grams[0].values())
    precision = sum(math.log(m / t) for m, t in zip(matches, totals)) / 4
    return 100 * math.exp(precision + min(0.0, 1 - lengths[1] / lengths[0]))


def scores_of(hypotheses, reference, tokenized):
    texts = [joiner_of("moses", "de")(line.split()) for line in hypotheses]
    entries = [*score.tokenized_scores(hypotheses, tokenized, True)]
    entries += score.text_scores(texts, reference, "de")
    return {entry.name: entry for entry in entries}


def test_the_three_scores_are_what_they_are_named(translations):
    # words and their full stop apart, as Moses has them
    reference, hypotheses = ([line[:-1] + " ." for line in side] for side in translations[:2])
    dashed = [[moses_words(line) for line in side] for side in (hypotheses, reference)]
    found = scores_of(dashed[0], reference, dashed[1])
    names = ["tokenized BLEU", "compound-split BLEU", "sacreBLEU", "chrF2", "TER"]
    assert list(found) == names
    # tokens come apart at dashes only for compound-split BLEU, whatever the data did
    assert found["tokenized BLEU"].score == pytest.approx(plain_bleu(hypotheses, reference))
    split = [[split_by_scanning(line) for line in side] for side in (hypotheses, reference)]
    assert found["compound-split BLEU"].score == pytest.approx(plain_bleu(*split))
    assert found["compound-split BLEU"].score != found["tokenized BLEU"].score
    assert "tok:none" in found["tokenized BLEU"].signature
    assert "tok:none" in found["compound-split BLEU"].signature
    assert "tok:13a" in found["sacreBLEU"].signature
    whole = scores_of(hypotheses, reference, reference)
    assert {k: v.score for k, v in whole.items()} == {k: v.score for k, v in found.items()}


def test_a_perfect_translation_scores_100(translations):
    reference = translations[0]
    tokenized = [moses_words(line) for line in reference]
    for name, entry in scores_of(tokenized, reference, tokenized).items():
        assert entry.score == pytest.approx(0 if name == "TER" else 100)


def test_hypotheses_come_in_order_best_first_and_none_may_lack(tmp_path):
    generated = ["S-1\tx", "H-1\t-0.1\tb @-@ c", "H-1\t-0.5\tworse", "D-1\t0\tz", "H-0\t-1\ta"]
    path = write(tmp_path / "g", [*generated, "H-2\t-2\t", "Generate test with beam=4"])
    assert score.read_hypotheses(path) == ["a", "b @-@ c", ""]
    hole = write(tmp_path / "hole", ["H-0\t-1\ta", "H-2\t-1\tb"])
    assert "sentence 1" in error_of(score.read_hypotheses, hole)
    assert "no hypotheses" in error_of(score.read_hypotheses, write(tmp_path / "n", ["x"]))
    flags = ["--lang", "de", "--reference", write(tmp_path / "r", ["a"] * 4)]
    flags += ["--tokenized-reference", write(tmp_path / "rt", ["a"] * 3), path]
    assert "4 lines" in error_of(score.main, flags)


def test_every_helper_explains_itself():
    for name in ("score", "compare"):
        finished = Command(str(COMMON / f"{name}.py"), ["--help"]).finish()
        assert finished.status == 0 and "usage:" in finished.out


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


def test_documents_are_scored_by_sentence_and_as_lines(translations, tmp_path, capsys):
    reference, good, _ = translations
    texts = {}
    for name, lines in (("reference", reference), ("found", good)):
        texts[name] = ["\n".join(lines[:3]), "\n".join(lines[3:11]), "\n".join(lines[11:])]
        write(tmp_path / name, "\n\n".join(texts[name]).split("\n"))
    paths = ["--reference", str(tmp_path / "reference"), "--documents", str(tmp_path / "found")]
    score.main(["--lang", "de", *paths, "--json", str(tmp_path / "scores.json")])
    found = {each["name"]: each for each in json.loads((tmp_path / "scores.json").read_text())}
    assert found["sacreBLEU"]["score"] == sacrebleu.corpus_bleu(good, [reference]).score
    joined = {name: [text.replace("\n", " ") for text in parts] for name, parts in texts.items()}
    whole = sacrebleu.corpus_bleu(joined["found"], [joined["reference"]])
    assert found["d-BLEU"]["score"] == whole.score and found["d-BLEU"]["hypotheses"] == 3
    message = error_of(score.main, ["--lang", "de", "--sentencepiece", "x", *paths])
    assert "--sentencepiece: is for the output of fairseq-generate" in message
