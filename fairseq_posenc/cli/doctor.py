"""``fairseq-posenc doctor``: checks of the installed packages, with a fix for each problem.

Every rule here was measured.  Each check imports only the package that it checks, so they also run
where fairseq cannot be imported.
"""

import argparse
import importlib
import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import Callable, List, NamedTuple, Optional, Tuple

from fairseq_posenc import __version__, register
from fairseq_posenc.basics.packages import EXTRAS
from fairseq_posenc.cli.command import Command, no_arguments, quieten

OK, WARN, FAIL = "ok", "warn", "FAIL"

FAIRSEQ_NEW = "pip install --no-build-isolation fairseq-fixed==0.12.3.1"
FAIRSEQ_OLD = "pip install 'pip<24.1' && pip install fairseq==0.12.2"


class Finding(NamedTuple):
    """One line of the report; *fix* is a command or an instruction, empty if none is needed."""

    level: str
    text: str
    fix: str = ""


def _version(distribution: str) -> Optional[str]:
    from importlib import metadata  # slow

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> Tuple[int, ...]:
    digits = version.split("+")[0].split(".")[:2]
    return tuple(int("".join(c for c in part if c.isdecimal()) or 0) for part in digits)


def check_python() -> List[Finding]:
    """fairseq runs on Python 3.8 to 3.13."""
    text = "Python " + ".".join(map(str, sys.version_info[:3]))
    if not (3, 8) <= sys.version_info[:2] <= (3, 13):
        return [Finding(FAIL, text, "use Python 3.8 to 3.13")]
    return [Finding(OK, text)]


def check_torch() -> List[Finding]:
    """PyTorch 1.12 or later, built for the GPUs that are there."""
    try:
        torch = importlib.import_module("torch")
    except Exception as error:
        return [Finding(FAIL, f"torch cannot be imported: {error}", "pip install torch")]
    text = f"torch {torch.__version__}"
    if _numbers(torch.__version__) < (1, 12):
        return [Finding(FAIL, text, "install PyTorch 1.12 or later")]
    found = [Finding(OK, text)]
    if not torch.cuda.is_available():
        return found + [Finding(OK, "no usable GPU: training runs on the CPU with --cpu")]
    built_for = torch.cuda.get_arch_list()
    for index in range(torch.cuda.device_count()):
        major, minor = torch.cuda.get_device_capability(index)
        text = f"GPU {index}: {torch.cuda.get_device_name(index)} (sm_{major}{minor})"
        fits = any(runs_on(arch, major, minor) for arch in built_for)
        fix = "" if fits else "this torch is not built for it; see constraints/v100.txt for sm_70"
        found.append(Finding(OK if fits else FAIL, text, fix))
    return found


def runs_on(arch: str, major: int, minor: int) -> bool:
    """True if a GPU runs code that was compiled for an architecture.

    Args:
        arch: such as ``sm_70``, ``sm_90a`` for that GPU alone, or ``compute_90``, which is compiled
            when it is first used.
        major: the major number of the GPU's compute capability.
        minor: the minor number of the same.
    """
    found = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", arch)
    if not found:
        return False
    built = int(found[2]), int(found[3])
    if found[4]:
        return built == (major, minor)
    # a build for a lower minor version of the same generation runs as well
    return built <= (major, minor) and (found[1] == "compute" or built[0] == major)


def check_numpy() -> List[Finding]:
    """fairseq was written for NumPy 1; the plug-in fixes text tasks under NumPy 2."""
    version = _version("numpy")
    if version is None:
        return [Finding(FAIL, "numpy is missing", "pip install 'numpy<2'")]
    if _numbers(version) >= (2, 0):
        return [
            Finding(WARN, f"numpy {version}: fixed for text tasks only", "pip install 'numpy<2'")
        ]
    return [Finding(OK, f"numpy {version}")]


def check_fairseq() -> List[Finding]:
    """One of the three distributions of fairseq, importable, with its compiled extensions."""
    new = sys.version_info >= (3, 11)
    install = FAIRSEQ_NEW if new else FAIRSEQ_OLD
    official, fork = _version("fairseq"), _version("fairseq-fixed")
    if official == "0.12.2" and new:
        text = "fairseq 0.12.2 cannot be imported on Python 3.11 and later"
        return [Finding(FAIL, text, f"pip uninstall fairseq && {FAIRSEQ_NEW}")]
    try:
        fairseq = importlib.import_module("fairseq")
        importlib.import_module("fairseq.data.data_utils_fast")
    except ImportError as error:
        fix = install if error.name in ("fairseq", None) else f"pip install {error.name}"
        return [Finding(FAIL, f"fairseq cannot be imported: {error}", fix)]
    except Exception as error:
        return [Finding(FAIL, f"fairseq cannot be imported: {error}", install)]
    name = "fairseq-fixed" if fork else "fairseq"
    found = [Finding(OK, f"{name} {fork or official or fairseq.__version__}")]
    omegaconf, pip = _version("omegaconf"), _version("pip")
    if omegaconf and _numbers(omegaconf) < (2, 1) and new:
        fix = "pip install omegaconf==2.3.0 hydra-core==1.3.2"
        found.append(Finding(FAIL, f"omegaconf {omegaconf} is too old for this Python", fix))
    if pip and _numbers(pip) >= (24, 1) and not new and official:
        text = f"pip {pip} refuses the omegaconf 2.0 that fairseq 0.12.2 needs"
        found.append(Finding(WARN, text, "pip install 'pip<24.1' before changing packages"))
    return found


def check_plugin() -> List[Finding]:
    """The plug-in can be registered with fairseq."""
    folder = Path(__file__).resolve().parents[1]
    try:
        register()
    except Exception as error:
        text = f"fairseq_posenc does not register: {type(error).__name__}: {error}"
        return [Finding(FAIL, text, "fix the problems above first")]
    return [Finding(OK, f"fairseq_posenc {__version__} in {folder} registers its architectures")]


def check_extras() -> List[Finding]:
    """Optional packages, grouped by the features that need them."""
    findings = []
    for purpose in dict.fromkeys(extra.purpose for extra in EXTRAS):
        extras = [extra for extra in EXTRAS if extra.purpose == purpose]
        missing = [extra for extra in extras if importlib.util.find_spec(extra.module) is None]
        text, fix = f"for {purpose}: " + ", ".join(extra.module for extra in extras), ""
        if missing:
            names = ", ".join(extra.module for extra in missing)
            text = f"optional, for {purpose}: {names} missing"
            fix = "pip install " + " ".join(extra.install for extra in missing)
        findings.append(Finding(WARN if missing else OK, text, fix))
    return findings


def check_environment() -> List[Finding]:
    """Settings that silently change what fairseq does."""
    name = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
    if os.environ.get(name):
        text = f"{name} is set: checkpoints can run arbitrary code"
        return [Finding(WARN, text, f"unset {name}; the plug-in does not need it")]
    return []


CHECKS: Tuple[Callable[[], List[Finding]], ...] = (
    check_python,
    check_torch,
    check_numpy,
    check_fairseq,
    check_plugin,
    check_extras,
    check_environment,
)


def examine() -> List[Finding]:
    """All findings, in the order in which they should be fixed."""
    return [finding for check in CHECKS for finding in check()]


def report(findings: List[Finding]) -> int:
    """Print *findings*; returns 1 if one of them is an error, else 0."""
    for finding in findings:
        print(f"{finding.level:<5} {finding.text}")
        if finding.fix and finding.level != OK:
            print(f"      fix: {finding.fix}")
    return int(any(finding.level == FAIL for finding in findings))


def run(args: argparse.Namespace) -> int:
    """Print the findings; returns 1 if one of them is an error, else 0."""
    quieten()
    return report(examine())


COMMANDS = (
    Command(
        "doctor",
        "check this installation and suggest fixes",
        "Check the versions of Python, PyTorch, NumPy, fairseq and optional packages, and print\n"
        "the command that fixes each problem.",
        no_arguments,
        run,
    ),
)
