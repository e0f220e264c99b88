"""The shell of the recipes: their options, digests, downloads."""

import functools
import hashlib
import http.server
import random
import re
import shutil
import threading

import pytest
from support.recipes import COMMON, EXAMPLES, assert_error, bash, shell, write

from fairseq_posenc.steps.options import declaration_of

PROGRAMS = sorted(
    path
    for path in EXAMPLES.glob("*/*.sh")
    if path.parent != COMMON and "common/steps.sh" in path.read_text()
    if "../reading/finetune.sh" not in path.read_text()  # of an earlier form
)


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


def functions_of(text):
    """The shell that a script sources, and what that sources."""
    names = re.findall(r'^\. "\$(?:COMMON|\(dirname "\$0"\)/\.\./common)/(\w+\.sh)"', text, re.M)
    sourced = [(COMMON / name).read_text() for name in names]
    return "".join([*sourced, *map(functions_of, sourced)])


@pytest.mark.parametrize("script", PROGRAMS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_help_is_printed_and_every_option_is_read(tmp_path, script):
    result = bash(script, "--help", cwd=tmp_path)
    assert result.returncode == 0 and script.name in result.stdout
    head, _, text = script.read_text().partition("\nset -euo pipefail\n")
    if "ARGUMENTS" in text or 'parse "$@"' not in text:  # it hands all options on
        return
    shared = functions_of(text)
    locking = re.findall(r"^(\w+)\(\) \{\n(?:[ \t].*\n|\n)*?[ \t]+alone ", shared, re.M)
    for step in re.finditer(r"^(step|train|tune) ", text, re.M):
        assert re.search(rf"^ *({'|'.join(['alone', *locking])})\b", text[: step.start()], re.M)
    # a mistake on the command line is found before anything happens
    assert not re.search(r"^ *(alone|run|step|train|mkdir)\b", text.partition("parse ")[0], re.M)
    text += shared
    options = declaration_of(str(script)).options
    assert len(options) >= 3
    for name, option in options.items():
        read = re.search(rf"\b{option.variable}\b|{name}\b|options_of", text)
        assert name in result.stdout and (read or name == "--help"), name
