"""The shell library of the recipes: dry runs, steps, digests, downloads."""

import functools
import hashlib
import http.server
import os
import random
import re
import shutil
import threading

import pytest
from recipes import COMMON, EXAMPLES, assert_error, bash, write

PROGRAMS = sorted(
    path
    for path in EXAMPLES.glob("*/*")
    if path.suffix in (".sh", ".sbatch") and path.parent != COMMON
)


def shell(body, cwd, **environment):
    """Run a few lines of bash with the library sourced."""
    script = cwd / "script.sh"
    script.write_text(f'set -euo pipefail\n. "{COMMON}/lib.sh"\n{body}\n')
    return bash(script, cwd=cwd, timeout=60, **environment)


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


def options_taken(script):
    """The options that a script looks for, itself or in what it shares with others."""
    texts = [script.read_text()]
    sourced = re.findall(r'^\. "\$RECIPE/\.\./common/(\w+\.sh)"', texts[0], re.MULTILINE)
    texts += [(COMMON / name).read_text() for name in sourced if name == "sentence_tasks.sh"]
    cases = re.findall(r"^ +((?:-[a-z-]+(?: \| )?)+)\)", "\n".join(texts), re.MULTILINE)
    return {option for case in cases for option in case.split(" | ")} - {"--"}


@pytest.mark.parametrize("script", PROGRAMS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_help_names_every_option(tmp_path, script):
    result = bash(script, "--help", cwd=tmp_path)
    assert result.returncode == 0 and script.name in result.stdout
    # those of finetune.sh of clue and of the jobs are another script's
    assert (
        len(options_taken(script)) >= 3 or "exec" in script.read_text() or "sbatch" in script.name
    )
    assert all(option in result.stdout for option in options_taken(script))
