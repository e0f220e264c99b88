"""The recipes' shared helpers: text cleaning, BPE, scores, and the shell library."""

import functools
import hashlib
import http.server
import math
import os
import random
import shutil
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("sacremoses", reason="the recipes need sacremoses")
pytest.importorskip("subword_nmt", reason="the recipes need subword-nmt")

ROOT = Path(__file__).resolve().parents[1]
COMMON = ROOT / "examples" / "common"
sys.path.insert(0, str(COMMON))

import bpe  # noqa: E402
import clean  # noqa: E402
import moses  # noqa: E402
import score  # noqa: E402
import text  # noqa: E402

SCRIPTS = [
    COMMON / "lib.sh",
    *sorted((ROOT / "examples" / "wmt14_en_de").glob("*.s[hb]*")),
]


def write(path, lines):
    path.write_bytes("".join(line + "\n" for line in lines).encode())
    return str(path)


def lines_of(path):
    return Path(path).read_bytes().decode().split("\n")[:-1]


def error_of(function, *args):
    """The one line that a helper leaves with."""
    with pytest.raises(SystemExit) as caught:
        function(*args)
    message = str(caught.value)
    assert "error" in message and "\n" not in message
    return message


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
    monkeypatch.setattr(text, "CHUNK", 3)
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
    assert "number of lines" in error_of(clean.main, [source, target, *outputs])
    assert "--ratio 0.5" in error_of(clean.main, ["--ratio", "0.5", source, source, *outputs])
    empty = write(tmp_path / "e", ["", ""])
    assert "no pair of 2" in error_of(clean.main, [empty, empty, *outputs])
    assert sorted(os.listdir(tmp_path)) == ["e", "s", "t"]


# --- BPE


def test_bpe_is_joint_reversible_and_the_same_for_any_number_of_workers(tmp_path):
    rng = random.Random(2)
    words = ["".join(rng.choices("abcdeß", k=rng.randint(1, 8))) for _ in range(40)]
    texts = [
        write(tmp_path / name, [" ".join(rng.choices(words, k=9)) for _ in range(50)])
        for name in ("en", "de")
    ]
    for workers in (1, 2):
        bpe.learn(texts, str(tmp_path / f"codes{workers}"), 30, workers)
    codes = lines_of(tmp_path / "codes1")
    assert codes == lines_of(tmp_path / "codes2")
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
    assert "no words" in error_of(bpe.main, ["learn", *flags, str(tmp_path / "c"), empty])
    learn = ["learn", "--operations", "0", str(tmp_path / "c"), some]
    assert "--operations 0" in error_of(bpe.main, learn)


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
    entries = score.score(hypotheses, reference, tokenized, "de", True)
    return {entry.name: entry for entry in entries}


def test_the_three_scores_are_what_they_are_named(translations):
    reference, hypotheses = translations
    tokenize = moses.tokenizer("de", True)
    dashed = [tokenize(line) for line in hypotheses], [tokenize(line) for line in reference]
    found = scores_of(dashed[0], reference, dashed[1])
    assert list(found) == ["tokenized BLEU", "compound-split BLEU", "sacreBLEU"]
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
    reference = translations[0]
    tokenized = [moses.tokenizer("de", True)(line) for line in reference]
    for entry in score.score(tokenized, reference, tokenized, "de", True):
        assert entry.score == pytest.approx(100)


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


# --- the shell library


def shell(body, cwd, **environment):
    script = cwd / "script.sh"
    script.write_text(f'set -euo pipefail\n. "{COMMON}/lib.sh"\n{body}\n')
    return subprocess.run(
        ["bash", str(script)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def assert_error(result, *parts):
    """The script failed with one line about it, the last it wrote."""
    assert result.returncode == 1, result.stderr
    last = result.stderr.strip().split("\n")[-1]
    assert "error:" in last and all(part in last for part in parts), result.stderr
    assert "Traceback" not in result.stderr


def test_a_dry_run_prints_and_does_nothing(tmp_path):
    body = "DRY_RUN=1 STEPS=steps\nrun touch 'a b'\nstep one touch c\nfetch http://x/y d"
    result = shell(body, tmp_path)
    assert result.returncode == 0
    printed = [line for line in result.stdout.splitlines() if line.startswith("+ ")]
    assert printed[0] == "+ touch a\\ b" and printed[1] == "+ touch c"
    assert printed[3].startswith("+ curl ") and printed[3].endswith(" d.part http://x/y")
    assert os.listdir(tmp_path) == ["script.sh"]


def test_a_failing_command_stops_the_script_with_one_line(tmp_path):
    assert_error(shell("run false\ntouch after", tmp_path), "status 1", "false")
    body = "STEPS=steps\nboth() { run false; touch after; }\nstep one both"
    assert_error(shell(body, tmp_path), "status 1")
    assert os.listdir(tmp_path) == ["script.sh"]


def test_steps_run_once_until_something_before_them_changes(tmp_path):
    body = "STEPS=steps\n" + "".join(
        f"step {name} bash -c 'echo {name} >>log' {name} \"${{{name}:-}}\"\n" for name in "abc"
    )
    ran = []
    for environment in ({}, {}, {"b": "1"}, {"b": "1"}, {"b": "1", "a": "1"}):
        (tmp_path / "log").write_text("")
        assert shell(body, tmp_path, **environment).returncode == 0
        ran.append("".join((tmp_path / "log").read_text().split()))
    assert ran == ["abc", "", "bc", "", "abc"]


def test_an_interrupted_step_is_run_again(tmp_path):
    body = "STEPS=steps\nstep one test -f ready"
    assert shell(body, tmp_path).returncode == 1
    (tmp_path / "ready").touch()
    assert shell(body, tmp_path).returncode == 0
    (tmp_path / "ready").unlink()
    assert shell(body, tmp_path).returncode == 0


def test_digests_published_given_and_recorded(tmp_path):
    file, trusted = tmp_path / "file", tmp_path / "trusted"
    file.write_text("one")
    sha = hashlib.sha256(b"one").hexdigest()
    md5 = hashlib.md5(b"one").hexdigest()
    assert shell(f"verify file sha256:{sha}", tmp_path).returncode == 0
    assert shell(f"verify file md5:{md5}", tmp_path).returncode == 0
    assert_error(shell(f"verify file sha256:{sha[::-1]}", tmp_path), "file", sha, sha[::-1])
    assert_error(shell(f"verify file md5:{md5[::-1]}", tmp_path), "file", md5)
    # the list of the user goes before the published digest
    write(trusted, ["# mine", f"{sha}  file"])
    checks = "CHECKSUMS=trusted\nverify file sha256:" + sha[::-1]
    assert shell(checks, tmp_path).returncode == 0
    # nothing known: recorded, said so, and compared from then on
    unknown = shell("RECORD=record\nverify file -", tmp_path)
    assert unknown.returncode == 0 and "no digest known" in unknown.stderr
    assert (tmp_path / "record").read_text() == f"{sha}  file\n"
    assert shell("RECORD=record\nverify file -", tmp_path).returncode == 0
    file.write_text("two")
    assert_error(shell("RECORD=record\nverify file -", tmp_path), "record", "file", sha)
    assert_error(shell(checks, tmp_path), "trusted")
    assert (tmp_path / "record").read_text() == f"{sha}  file\n"


def test_half_an_archive_is_never_recorded(tmp_path):
    (tmp_path / "half.tgz").write_bytes(b"\x1f\x8b\x08\0\0\0\0\0\0\3")
    assert_error(shell("RECORD=record\nverify half.tgz -", tmp_path), "half.tgz", "incomplete")
    assert not (tmp_path / "record").exists()


class RangeHandler(http.server.SimpleHTTPRequestHandler):
    """Serves one content, whole or from an offset, and notes what was asked for."""

    def __init__(self, content, asked, *args):
        self.content, self.asked = content, asked
        super().__init__(*args)

    def do_GET(self):
        wanted = self.headers.get("Range")
        self.asked.append(wanted)
        start = int(wanted[len("bytes=") :].rstrip("-")) if wanted else 0
        size = len(self.content)
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        self.send_header("Content-Length", str(len(self.content) - start))
        self.end_headers()
        self.wfile.write(self.content[start:])

    def log_message(self, *args):
        pass


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_a_download_is_continued_and_gets_its_name_only_when_right(tmp_path):
    content, asked = bytes(random.Random(5).choices(range(256), k=5000)), []
    handler = functools.partial(RangeHandler, content, asked)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_address[1]}/file"
        good = f"fetch {address} got sha256:{hashlib.sha256(content).hexdigest()}"
        (tmp_path / "got.part").write_bytes(content[:2000])
        assert shell(good, tmp_path, no_proxy="127.0.0.1").returncode == 0
        assert asked == ["bytes=2000-"]
        assert (tmp_path / "got").read_bytes() == content
        assert not (tmp_path / "got.part").exists()
        assert shell(good, tmp_path).returncode == 0
        assert len(asked) == 1  # a file that is there is checked, not loaded again
        # interrupted between the last byte and the check: nothing is left to load
        (tmp_path / "got").rename(tmp_path / "got.new")
        assert shell(good, tmp_path, no_proxy="127.0.0.1").returncode == 0
        assert (tmp_path / "got").read_bytes() == content
        assert len(asked) == 1
        bad = f"fetch {address} other sha256:{'0' * 64}"
        assert_error(shell(bad, tmp_path, no_proxy="127.0.0.1"), "other", "0" * 64)
        assert not (tmp_path / "other").exists()
        assert_error(shell(bad, tmp_path, no_proxy="127.0.0.1"), "other.new", "remove it")
        assert len(asked) == 2
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="needs shellcheck")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck(script):
    result = subprocess.run(["shellcheck", str(script)], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout
    assert "shellcheck disable" not in script.read_text()


def test_every_helper_explains_itself():
    for name in ("moses", "clean", "bpe", "score"):
        result = subprocess.run(
            [sys.executable, str(COMMON / f"{name}.py"), "--help"], capture_output=True, text=True
        )
        assert result.returncode == 0 and "usage:" in result.stdout
