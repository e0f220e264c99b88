"""The scores of the recipes."""

import math
import random
from collections import Counter
from pathlib import Path

import pytest
from support.commands import Command
from support.recipes import COMMON, error_of, recipe_module, write

from fairseq_posenc.text.words import joiner_of, words_of

score = recipe_module("common", "score")


def lines_of(path):
    return Path(path).read_bytes().decode().split("\n")[:-1]


# --- scores


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


@pytest.fixture
def translations():
    """A reference and a translation with some words changed, as plain German text."""
    rng = random.Random(4)
    words = "der die das Haus E-Mail gut-gemeint läuft schnell heute und nicht Tür-Schloss".split()
    reference = [" ".join(rng.choices(words, k=12)) + " ." for _ in range(80)]
    hypotheses = [
        " ".join(rng.choice(words) if rng.random() < 0.2 else word for word in line.split())
        for line in reference
    ]
    return reference, hypotheses


def scores_of(hypotheses, reference, tokenized):
    texts = [joiner_of("moses", "de")(line.split()) for line in hypotheses]
    entries = [*score.tokenized_scores(hypotheses, tokenized, True)]
    entries += score.text_scores(texts, reference, "de")
    return {entry.name: entry for entry in entries}


def test_the_three_scores_are_what_they_are_named(translations):
    reference, hypotheses = translations
    tokenize = moses_words
    dashed = [tokenize(line) for line in hypotheses], [tokenize(line) for line in reference]
    found = scores_of(dashed[0], reference, dashed[1])
    names = ["tokenized BLEU", "compound-split BLEU", "sacreBLEU", "chrF2", "TER"]
    assert list(found) == names
    # tokens come apart at dashes only for compound-split BLEU, whatever the data did
    assert found["tokenized BLEU"].score == pytest.approx(plain_bleu(hypotheses, reference))
    split = [[split_by_scanning(line) for line in side] for side in translations]
    assert found["compound-split BLEU"].score == pytest.approx(plain_bleu(split[1], split[0]))
    assert found["compound-split BLEU"].score != found["tokenized BLEU"].score
    assert "tok:none" in found["tokenized BLEU"].signature
    assert "tok:none" in found["compound-split BLEU"].signature
    assert "tok:13a" in found["sacreBLEU"].signature
    whole = scores_of(hypotheses, reference, reference)
    assert {k: v.score for k, v in whole.items()} == {k: v.score for k, v in found.items()}


def test_a_perfect_translation_scores_100(translations):
    reference = [line.replace(" .", ".") for line in translations[0]]
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
