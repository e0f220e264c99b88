"""The recipes' Python helpers: tokenising, cleaning, BPE and scores."""

import math
import os
import random
from collections import Counter
from pathlib import Path

import pytest
from support.commands import Command
from support.recipes import COMMON, error_of, recipe_module, write

bpe = recipe_module("common", "bpe")
clean = recipe_module("common", "clean")
moses = recipe_module("common", "moses")
score = recipe_module("common", "score")
parallel = recipe_module("common", "parallel")


def lines_of(path):
    return Path(path).read_bytes().decode().split("\n")[:-1]


# --- Moses


@pytest.mark.parametrize(
    "nasty", ["a\rb", "a\u2028b", "a\x85b", "a\u00a0b", "a\x0cb", "a\tb", "a\u200bb", "  a  b "]
)
def test_a_sentence_stays_one_line_of_plain_tokens(nasty):
    tokens = moses.tokenizer("de", True)(nasty)
    assert tokens == "a b"
    assert len((tokens + "\nnext").splitlines()) == 2


def test_dash_splits_are_undone_by_join_dashes():
    sentence = "Ein gut-gemeinter E-Mail-Test kostet 3,50 Euro (z.B. hier)."
    split, whole = moses.tokenizer("de", True)(sentence), moses.tokenizer("de", False)(sentence)
    assert " @-@ " in split and "@-@" not in whole
    assert score.join_dashes(split) == whole


def test_detokenizing_undoes_tokenizing():
    for sentence in ["Das ist gut, sagte er.", "Die 5-jährige Anna & ihr Hund!", 'Er sagt "ja".']:
        assert moses.detokenizer("de")(moses.tokenizer("de", True)(sentence)) == sentence


def test_tokenizing_a_file_keeps_order_and_count_for_any_number_of_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(parallel, "CHUNK", 3)
    source = write(tmp_path / "in", [f"Satz {i},\rdann-mehr." if i % 7 else "" for i in range(60)])
    for workers in ("1", "2"):
        moses.main(
            ["tokenize", "--lang", "de", "--workers", workers, source, str(tmp_path / workers)]
        )
    assert lines_of(tmp_path / "1") == lines_of(tmp_path / "2")
    assert len(lines_of(tmp_path / "1")) == 60
    assert [line.split()[1] for line in lines_of(tmp_path / "1") if line] == [
        str(i) for i in range(60) if i % 7
    ]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_broken_input_is_one_line_and_leaves_nothing(tmp_path, workers):
    bad = tmp_path / "bad"
    bad.write_bytes(b"gut\n\xff\xfe\n")
    output = tmp_path / "out"
    flags = ["tokenize", "--lang", "de", "--workers", workers]
    assert "UTF-8" in error_of(moses.main, [*flags, str(bad), str(output)])
    assert "nowhere" in error_of(moses.main, [*flags, "nowhere", str(output)])
    assert os.listdir(tmp_path) == ["bad"]


# --- cleaning


@pytest.mark.parametrize(
    "source, target, expected",
    [(0, 3, "short"), (3, 0, "short"), (1, 1, "kept"), (250, 250, "kept"), (251, 250, "long")]
    + [(250, 251, "long"), (10, 15, "kept"), (15, 10, "kept"), (10, 16, "ratio"), (3, 2, "kept")],
)
def test_cleaning_keeps_pairs_up_to_the_limits(source, target, expected):
    assert clean.verdict("x " * source, "y " * target, 1, 250, 1.5) == expected


def test_cleaning_keeps_the_sides_aligned(tmp_path):
    rng = random.Random(1)
    lengths = [(rng.randint(0, 12), rng.randint(0, 12)) for _ in range(200)]
    source = write(tmp_path / "s", [" ".join([str(i)] * a) for i, (a, _) in enumerate(lengths)])
    target = write(tmp_path / "t", [" ".join([str(i)] * b) for i, (_, b) in enumerate(lengths)])
    outputs = [str(tmp_path / "s2"), str(tmp_path / "t2")]
    clean.main(["--max-length", "10", "--ratio", "2", source, target, *outputs])
    kept = [[line.split()[0] for line in lines_of(path)] for path in outputs]
    assert kept[0] == kept[1]
    assert kept[0] == [
        str(i)
        for i, (a, b) in enumerate(lengths)
        if 1 <= a <= 10 and 1 <= b <= 10 and a <= 2 * b and b <= 2 * a
    ]


def test_unequal_texts_are_refused_and_nothing_is_written(tmp_path):
    source, target = write(tmp_path / "s", ["a", "b"]), write(tmp_path / "t", ["a"])
    outputs = [str(tmp_path / "s2"), str(tmp_path / "t2")]
    assert "different numbers of lines" in error_of(clean.main, [source, target, *outputs])
    assert "--ratio 0.5" in error_of(clean.main, ["--ratio", "0.5", source, source, *outputs])
    empty = write(tmp_path / "e", ["", ""])
    assert "none of 2 pairs" in error_of(clean.main, [empty, empty, *outputs])
    assert sorted(os.listdir(tmp_path)) == ["e", "s", "t"]


# --- BPE


def test_bpe_is_joint_reversible_and_independent_of_the_order(tmp_path):
    rng = random.Random(2)
    words = ["".join(rng.choices("abcdeß", k=rng.randint(1, 8))) for _ in range(40)]
    texts = [
        write(tmp_path / name, [" ".join(rng.choices(words, k=9)) for _ in range(50)])
        for name in ("en", "de")
    ]
    for order in (1, -1):
        bpe.learn(texts[::order], str(tmp_path / f"codes{order}"), 30)
    codes = lines_of(tmp_path / "codes1")
    assert codes == lines_of(tmp_path / "codes-1")
    assert len(codes) == 31  # the version, then the merges
    bpe.main(["apply", str(tmp_path / "codes1"), texts[0], str(tmp_path / "out")])
    segmented = lines_of(tmp_path / "out")
    assert [line.replace("@@ ", "") for line in segmented] == lines_of(texts[0])
    assert any("@@ " in line for line in segmented)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_bpe_errors_are_one_line(tmp_path, workers):
    some = write(tmp_path / "some", ["a b"])
    flags = ["--workers", workers]
    assert "nowhere" in error_of(bpe.main, ["apply", *flags, "nowhere", some, "out"])
    empty = write(tmp_path / "empty", [])
    assert "no words" in error_of(bpe.main, ["learn", str(tmp_path / "c"), empty])
    for lines in (["a b a b"], ["ab cd"]):  # apply would refuse codes without merges
        text = write(tmp_path / "text", lines)
        message = error_of(bpe.main, ["learn", str(tmp_path / "c"), text])
        assert f"{text}: no two characters stand together twice" in message
    assert not (tmp_path / "c").exists()
    for flag in ("--operations", "--words"):
        assert f"{flag} 0" in error_of(bpe.main, ["learn", flag, "0", str(tmp_path / "c"), some])


# --- scores


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
    texts = [moses.detokenizer("de")(line) for line in hypotheses]
    entries = [*score.tokenized_scores(hypotheses, tokenized, True)]
    entries += score.text_scores(texts, reference, "de")
    return {entry.name: entry for entry in entries}


def test_the_three_scores_are_what_they_are_named(translations):
    reference, hypotheses = translations
    tokenize = moses.tokenizer("de", True)
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
    tokenized = [moses.tokenizer("de", True)(line) for line in reference]
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
    for name in ("moses", "clean", "bpe", "spm", "pairs", "score", "compare"):
        finished = Command(str(COMMON / f"{name}.py"), ["--help"]).finish()
        assert finished.status == 0 and "usage:" in finished.out
