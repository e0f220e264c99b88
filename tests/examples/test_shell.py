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
from support.recipes import COMMON, EXAMPLES, assert_error, bash, shell, write

PROGRAMS = sorted(
    path
    for path in EXAMPLES.glob("*/*")
    if path.suffix in (".sh", ".sbatch") and path.parent != COMMON
)


def test_a_dry_run_prints_and_does_nothing(tmp_path):
    body = "DRY_RUN=1 STEPS=steps\nrun touch 'a b'\nstep one -- touch c\nfetch http://x/y d"
    result = shell(body, tmp_path)
    assert result.returncode == 0
    printed = [line for line in result.stdout.splitlines() if line.startswith("+ ")]
    assert printed[0] == "+ touch a\\ b" and printed[1] == "+ touch c"
    assert printed[3].startswith("+ curl ") and printed[3].endswith(" d.part http://x/y")
    assert os.listdir(tmp_path) == ["script.sh"]


def test_a_failing_command_stops_the_script_with_one_line(tmp_path):
    assert_error(shell("run false\ntouch after", tmp_path), "status 1", "false")
    body = "STEPS=steps\nboth() { run false; touch after; }\nstep one -- both"
    assert_error(shell(body, tmp_path), "status 1")
    assert os.listdir(tmp_path) == ["script.sh"]


def test_steps_run_once_until_something_before_them_changes(tmp_path):
    body = "STEPS=steps\n" + "".join(
        f"step {name} -- bash -c 'echo {name} >>log' {name} \"${{{name}:-}}\"\n" for name in "abc"
    )
    ran = []
    for environment in ({}, {}, {"b": "1"}, {"b": "1"}, {"b": "1", "a": "1"}):
        (tmp_path / "log").write_text("")
        assert shell(body, tmp_path, **environment).returncode == 0
        ran.append("".join((tmp_path / "log").read_text().split()))
    assert ran == ["abc", "", "bc", "", "abc"]


def test_an_interrupted_step_is_run_again(tmp_path):
    body = "STEPS=steps\nstep one -- test -f ready"
    assert shell(body, tmp_path).returncode == 1
    (tmp_path / "ready").touch()
    assert shell(body, tmp_path).returncode == 0
    (tmp_path / "ready").unlink()
    assert shell(body, tmp_path).returncode == 0


def test_a_deleted_output_is_made_again_with_all_that_follows(tmp_path):
    body = "STEPS=steps\nchain given\n" + "".join(
        f"step {name} out.{name} -- bash -c 'echo {name} >>log; touch out.{name}; {fail}'\n"
        for name, fail in (("a", ""), ("b", ""), ("c", "test -z ${stop:-}"), ("d", ""))
    )
    assert shell(body, tmp_path).returncode == 0
    (tmp_path / "log").write_text("")
    (tmp_path / "out.b").unlink()
    stopped = shell(body, tmp_path, stop="1")
    assert stopped.returncode == 1 and "b: was done, but out.b is gone" in stopped.stderr
    # interrupted meanwhile, the steps that follow are not believed either
    assert shell(body, tmp_path).returncode == 0
    assert (tmp_path / "log").read_text().split() == ["b", "c", "c", "d"]
    again = shell(body, tmp_path)
    assert again.stderr.count("already done") == 4


def test_a_step_that_was_interrupted_is_not_believed_though_its_outputs_are_there(tmp_path):
    body = "STEPS=steps\nchain given\nstep a out -- bash -c 'echo >out; test -z ${stop:-}' a $w"
    assert shell(body, tmp_path, w="1").returncode == 0
    (tmp_path / "out").unlink()
    assert shell(body, tmp_path, w="1", stop="1").returncode == 1
    again = shell(body, tmp_path, w="1")
    assert again.returncode == 0 and "already done" not in again.stderr
    # nor after a try with another option
    assert shell(body, tmp_path, w="2", stop="1").returncode == 1
    again = shell(body, tmp_path, w="1")
    assert again.returncode == 0 and "already done" not in again.stderr
    assert "already done" in shell(body, tmp_path, w="1").stderr


def test_a_step_without_its_output_is_an_error(tmp_path):
    assert_error(shell("STEPS=steps\nstep a out -- true", tmp_path), "a: true", "out")
    assert not (tmp_path / "steps").exists()


@pytest.mark.parametrize("name", ["..", ".", ".hidden", "a/b", "../x", "/x", "a b", "-x", ""])
def test_names_that_leave_the_folder_are_refused(tmp_path, name):
    assert_error(shell(f"plain_name --name '{name}'", tmp_path), f"--name {name}: expected")
    assert shell("plain_name --name shaw+rotary_1.2-b", tmp_path).returncode == 0


def test_a_run_is_known_by_its_command(tmp_path):
    body = "same_run --name run fairseq-train 'a b' --lr ${lr:-1}"
    for _ in range(2):
        assert shell(body, tmp_path).returncode == 0
    assert (tmp_path / "run" / "command").read_text() == "fairseq-train a\\ b --lr 1 \n"
    assert_error(shell(body, tmp_path, lr="2"), "other flags", "--name")
    assert os.listdir(tmp_path / "run") == ["command"]


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
    # what was accepted once is compared from then on
    accepted = shell(f"RECORD=record\nverify file sha256:{sha}", tmp_path)
    assert accepted.returncode == 0
    assert (tmp_path / "record").read_text() == f"{sha}  file\n"
    assert shell("RECORD=record\nverify file -", tmp_path).returncode == 0
    file.write_text("two")
    assert_error(shell("RECORD=record\nverify file -", tmp_path), "record", "file", sha)
    assert_error(shell(checks, tmp_path), "trusted")
    assert (tmp_path / "record").read_text() == f"{sha}  file\n"


def test_a_file_without_known_digest_is_refused_until_it_is_listed(tmp_path):
    (tmp_path / "file").write_text("one")
    line = f"{hashlib.sha256(b'one').hexdigest()}  file"
    write(tmp_path / "others", [line.replace("file", "profile")])
    for lists in ("", "CHECKSUMS=others ", "RECORD=record "):
        refused = shell(f"{lists}\nverify file -", tmp_path)
        assert_error(refused, "file", f'"{line}"', "--checksums")
    write(tmp_path / "mine", [line])
    assert shell("CHECKSUMS=mine\nverify file -", tmp_path).returncode == 0


DIGESTS = {kind: getattr(hashlib, kind)(b"one").hexdigest() for kind in ("md5", "sha1", "sha256")}
FORMS = {
    "sha256sum": "{sha256}  my file.gz\n",
    "binary": "{sha256} *my file.gz\n",
    "Windows": "\ufeff{sha256}  my file.gz\r\n",
    "dot": "{sha256}  ./my file.gz\n",
    "folder": "{sha256}  raw/deep/my file.gz\n",
    "backslash": "{sha256} *raw\\my file.gz\n",
    "escaped": "\\{sha256}  raw\\\\a/my file.gz\n",
    "BSD": "SHA256 (raw/my file.gz) = {sha256}\n",
    "openssl": "SHA256(my file.gz)= {sha256}\n",
    "md5sum": "{md5}  my file.gz\n",
    "BSD md5": "MD5 (my file.gz) = {md5}\n",
    "sha1sum": "{sha1}  my file.gz\n",
    "no line feed": "# mine\n\n{sha256}\tmy file.gz",
    "twice": "{sha256}  my file.gz\n{sha256}  again/my file.gz\n",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", [str.lower, str.upper], ids=["lower", "upper"])
def test_every_common_form_of_a_digest_list_is_read(tmp_path, form, case):
    (tmp_path / "my file.gz").write_text("one")
    right = FORMS[form].format(**{kind: case(digest) for kind, digest in DIGESTS.items()})
    (tmp_path / "right").write_text(right)
    wrong = FORMS[form].format(**{kind: digest[::-1] for kind, digest in DIGESTS.items()})
    (tmp_path / "wrong").write_text(wrong)
    verify = "verify 'my file.gz' -"
    result = shell(f"CHECKSUMS=right; {verify}; CHECKSUMS=wrong; {verify}", tmp_path)
    assert "my file.gz: " in result.stderr and "as right says" in result.stderr
    assert_error(result, "my file.gz", "wrong says")


@pytest.mark.parametrize(
    "line, reason",
    [
        ("<html>", "expected a digest and the name"),
        ("{sha256}", "expected a digest and the name"),
        ("file {sha256}", "expected a digest and the name"),
        ("{sha256}0  file", "unknown kind"),
        ("{sha256}  file\n{md5}  other/file", "a second digest of file"),
    ],
)
def test_a_list_that_cannot_be_read_is_refused(tmp_path, line, reason):
    (tmp_path / "file").write_text("one")
    (tmp_path / "list").write_text(f"{DIGESTS['sha256']}  other\n{line.format(**DIGESTS)}\n")
    digest = f"sha256:{DIGESTS['sha256']}"  # nor is another digest taken instead
    result = shell(f"CHECKSUMS=list\nverify file {digest}", tmp_path)
    assert_error(result, "list: not a list of digests")
    assert reason in result.stderr


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
