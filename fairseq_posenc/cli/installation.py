"""``fairseq-posenc path``, ``list``, ``doctor``: the plug-in's folder, names and installation.

Each check of ``doctor`` imports only the package that it checks, so the other checks also run where
fairseq cannot be imported.
"""

import argparse
import importlib
import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from fairseq_posenc import __version__, register
from fairseq_posenc.basics.packages import EXTRAS
from fairseq_posenc.cli.command import command, load_plug_in, quieten, user_dir

if TYPE_CHECKING:
    from fairseq_posenc.flags.registry import Registry
    from fairseq_posenc.models import Family

FOLDER = Path(__file__).resolve().parents[1]
# settings in which presets differ, besides encoding and size
DISTINGUISHING = ("attention", "layer", "norm", "feed_forward", "no_bias", "untie_cls", "causal")


def catalogue() -> str:
    """What ``list`` prints: entries of registries with their papers, and the architectures."""
    from fairseq_posenc.attention.base import ATTENTIONS
    from fairseq_posenc.configuration.features import FEATURES
    from fairseq_posenc.encodings import ENCODINGS
    from fairseq_posenc.exchange import FORMATS
    from fairseq_posenc.layers.feed_forward import FEED_FORWARDS
    from fairseq_posenc.layers.norms import NORMS
    from fairseq_posenc.models import FAMILIES

    lines: List[str] = []
    chosen_with = [registry for each in FEATURES for registry in each.registries]
    for registry in (ENCODINGS, *chosen_with, ATTENTIONS, NORMS, FEED_FORWARDS):
        lines += [f"{registry.flag}: {registry.title}", *_entries(registry), ""]
    lines.append("import and export: formats")
    for name, entry in FORMATS.items():
        lines.append(f"  {name:<16} {entry.summary}; {entry.ways}")
    for model, family in FAMILIES.items():
        lines += ["", f"--arch: architectures of {model}, {family.what} (layers x channels)"]
        lines += [f"  {name:<30} {_architecture(family, name)}" for name in family.presets]
    return "\n".join(lines)


def _entries(registry: "Registry[Any]") -> List[str]:
    width = max(16, *map(len, registry))
    found = registry.items()
    texts = {name: "; ".join(filter(None, (e.summary, e.paper))) for name, e in found}
    return [f"  {name:<{width}} {text}" for name, text in texts.items()]


def _architecture(family: "Family", name: str) -> str:
    """A preset's encoding, its size, and those settings that differ from the defaults."""
    from fairseq_posenc.configuration.features import side_encoding

    preset = family.presets[name]
    if not preset:
        return "no preset: the flags set everything"
    cfg = argparse.Namespace()
    family.complete(cfg, preset, argparse.Namespace())
    stacks, settings = family.stacks(cfg), vars(cfg)
    encodings = dict.fromkeys(side_encoding(cfg, stack.side) for stack in stacks)
    layers = [str(settings[f"{stack.side}_layers"]) for stack in stacks]
    widths = dict.fromkeys(str(settings[f"{stack.side}_embed_dim"]) for stack in stacks)
    heads = dict.fromkeys(str(stack.num_heads) for stack in stacks)
    size = f"{'+'.join(layers)} x {'+'.join(widths)}, heads {'+'.join(heads)}"
    return "; ".join([" + ".join(encodings), size, *_settings(settings, family)])


def _settings(settings: Dict[str, Any], family: "Family") -> List[str]:
    from fairseq_posenc.configuration.fields import defaults_of

    defaults, shown = defaults_of(family.dataclass), []
    for name in DISTINGUISHING:
        value = settings.get(name)
        if name in defaults and value != defaults[name]:
            words = name.replace("_", " ")
            shown.append(words if value is True else f"{words} {value}")
    return shown


@command("path", "print the folder to pass to fairseq's --user-dir")
def path(args: argparse.Namespace) -> None:
    """Print the folder to pass to fairseq's commands: --user-dir "$(fairseq-posenc path)"."""
    print(FOLDER)


@command(
    "list",
    "print architectures, encodings and their papers",
    user_dir("the folder of your own encodings, formats and presets, to list them as well"),
)
def list_(args: argparse.Namespace) -> None:
    """Print the names that the plug-in's flags accept.

    These are position encodings, position rules and samplers, attentions, norms, feed-forwards,
    generated tasks, formats for import and export, and architectures (with their sizes).
    """
    load_plug_in(args.user_dir)
    print(catalogue())


OK, WARN, FAIL = "ok", "warn", "FAIL"
FAIRSEQ_NEW = "pip install --no-build-isolation fairseq-fixed==0.12.3.1"
FAIRSEQ_OLD = "pip install 'pip<24.1' && pip install fairseq==0.12.2"
#: Packages that fairseq requires only for building it and for speech tasks.
UNUSED = ("cffi", "cython", "torchaudio")


class Finding(NamedTuple):
    """A line of the report; *fix*, a command or instruction, is shown unless *level* is ``ok``."""

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


def check_python() -> Iterator[Finding]:
    """Python is 3.8 to 3.13, on which fairseq runs."""
    fits = (3, 8) <= sys.version_info[:2] <= (3, 13)
    text = "Python " + ".".join(map(str, sys.version_info[:3]))
    yield Finding(OK if fits else FAIL, text, "use Python 3.8 to 3.13")


def check_torch() -> Iterator[Finding]:
    """PyTorch is 1.12 or later, and was built for the GPUs of this machine."""
    try:
        torch = importlib.import_module("torch")
    except Exception as error:
        yield Finding(FAIL, f"torch cannot be imported: {error}", "pip install torch")
        return
    level = OK if _numbers(torch.__version__) >= (1, 12) else FAIL
    yield Finding(level, f"torch {torch.__version__}", "install PyTorch 1.12 or later")
    if not torch.cuda.is_available():
        yield Finding(OK, "no usable GPU: give --cpu to train on the CPU")
        return
    for index in range(torch.cuda.device_count()):
        major, minor = torch.cuda.get_device_capability(index)
        fits = any(runs_on(arch, major, minor) for arch in torch.cuda.get_arch_list())
        text = f"GPU {index}: {torch.cuda.get_device_name(index)} (sm_{major}{minor})"
        fix = "install a PyTorch built for this GPU; for sm_70 see constraints/v100.txt"
        yield Finding(OK if fits else FAIL, text, fix)


def runs_on(arch: str, major: int, minor: int) -> bool:
    """True if a GPU of compute capability *major*.*minor* runs code that was compiled for *arch*.

    For example, ``sm_70`` code also runs on 7.5, but not on 8.0; ``sm_90a`` code runs on 9.0 alone;
    ``compute_90`` code also runs on later GPUs, for which it is compiled at its first use.
    """
    found = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", arch)
    if not found:
        return False
    built = int(found[2]), int(found[3])
    if found[4]:
        return built == (major, minor)
    return built <= (major, minor) and (found[1] == "compute" or built[0] == major)


def check_numpy() -> Iterator[Finding]:
    """NumPy is 1.x, for which fairseq was written; under NumPy 2 the plug-in repairs text tasks."""
    version = _version("numpy")
    new = version is not None and _numbers(version) >= (2, 0)
    text = f"numpy {version or 'is missing'}{': works with text tasks only' if new else ''}"
    level = WARN if new else OK if version else FAIL
    yield Finding(level, text, "pip install 'numpy<2'")


def check_fairseq() -> Iterator[Finding]:
    """One of fairseq's three distributions can be imported, with its compiled extensions."""
    new = sys.version_info >= (3, 11)
    install = FAIRSEQ_NEW if new else FAIRSEQ_OLD
    official, fork = _version("fairseq"), _version("fairseq-fixed")
    if official == "0.12.2" and new:
        text = "fairseq 0.12.2 cannot be imported on Python 3.11 and later"
        yield Finding(FAIL, text, f"pip uninstall fairseq && {install}")
        return
    try:
        fairseq = importlib.import_module("fairseq")
        importlib.import_module("fairseq.data.data_utils_fast")
    except Exception as error:
        missing = error.name if isinstance(error, ImportError) else None
        fix = install if missing in ("fairseq", None) else f"pip install {missing}"
        yield Finding(FAIL, f"fairseq cannot be imported: {error}", fix)
        return
    name = "fairseq-fixed" if fork else "fairseq"
    yield Finding(OK, f"{name} {fork or official or fairseq.__version__}")
    absent = ", ".join(package for package in UNUSED if _version(package) is None)
    if absent:
        yield Finding(OK, f"pip warns that {name} requires {absent}: harmless for text tasks")
    omegaconf, pip = _version("omegaconf"), _version("pip")
    if omegaconf and _numbers(omegaconf) < (2, 1) and new:
        fix = "pip install omegaconf==2.3.0 hydra-core==1.3.2"
        yield Finding(FAIL, f"omegaconf {omegaconf} is too old for this Python", fix)
    if pip and _numbers(pip) >= (24, 1) and not new and official:
        text = f"pip {pip} refuses the omegaconf 2.0 that fairseq 0.12.2 needs"
        yield Finding(WARN, text, "pip install 'pip<24.1' before changing packages")


def check_plugin() -> Iterator[Finding]:
    """The plug-in can be registered with fairseq."""
    try:
        register()
        yield Finding(OK, f"fairseq_posenc {__version__} in {FOLDER} registers its architectures")
    except Exception as error:
        text = f"fairseq_posenc does not register: {type(error).__name__}: {error}"
        yield Finding(FAIL, text, "fix the problems above first")


def check_extras() -> Iterator[Finding]:
    """Optional packages are installed; they are grouped by the features that need them."""
    for purpose in dict.fromkeys(extra.purpose for extra in EXTRAS):
        extras = [extra for extra in EXTRAS if extra.purpose == purpose]
        missing = [extra for extra in extras if importlib.util.find_spec(extra.module) is None]
        names = ", ".join(extra.module for extra in missing or extras)
        text = f"optional, for {purpose}: {names} missing" if missing else f"for {purpose}: {names}"
        fix = "pip install " + " ".join(extra.install for extra in missing)
        yield Finding(WARN if missing else OK, text, fix)


def check_environment() -> Iterator[Finding]:
    """No environment variable lets checkpoints run arbitrary code."""
    name = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
    if os.environ.get(name):
        text = f"{name} is set: checkpoints can run arbitrary code"
        yield Finding(WARN, text, f"unset {name}; the plug-in does not need it")


def report(findings: Iterable[Finding]) -> int:
    """Print *findings*; returns 1 if the level of one is ``FAIL``, else 0."""
    failed = False
    for finding in findings:
        print(f"{finding.level:<5} {finding.text}")
        if finding.level != OK:
            print(f"      fix: {finding.fix}")
            failed = failed or finding.level == FAIL
    return int(failed)


@command("doctor", "check this installation and suggest fixes")
def doctor(args: argparse.Namespace) -> int:
    """Check the versions of Python, PyTorch, NumPy, fairseq and optional packages.

    For each problem, print a command or an instruction that fixes it.
    """
    quieten()
    checks = (check_python, check_torch, check_numpy, check_fairseq, check_plugin, check_extras)
    return report(finding for check in (*checks, check_environment) for finding in check())


COMMANDS = (path, list_, doctor)
