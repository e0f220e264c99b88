"""Mistakes in the configuration of ``fairseq-hydra-train``, on one line.

fairseq loads the ``common.user_dir`` after Hydra has composed the configuration, and then fills in
the defaults of all sections; that is when they are checked here.
"""

import sys
from typing import Any, Callable, Collection, Dict, Mapping, Sequence, Tuple

from fairseq.dataclass.configs import FairseqConfig
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from omegaconf.errors import ValidationError

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.flags.usage import near

_FOLDER = "checkpoint.save_dir"
_EACH = f"give each its own by what differs, such as '{_FOLDER}=runs/${{model.position_encoding}}'"
#: The overrides of the jobs of a multirun that trained in this process, by their folder.
_begun: Dict[str, Sequence[str]] = {}


def checked(add_defaults: Callable[..., None]) -> Callable[..., None]:
    """Check the sections before fairseq fills in their defaults."""

    def wrapper(cfg: Any) -> None:
        _check_sections(cfg)
        _check_folder(str(cfg.checkpoint.save_dir), sys.argv[1:])
        add_defaults(cfg)

    return wrapper


def _check_sections(cfg: Any) -> None:
    """Check names and values of all sections.

    Raises:
        UsageError: naming the override, as it is given on the command line.
    """
    known = FairseqConfig.__dataclass_fields__
    for section in cfg:
        # fairseq-hydra-train itself adds the other one
        if section not in known and section != "job_logging_cfg":
            raise UsageError(f"+{section}: no section of fairseq{near(str(section), list(known))}")
    if cfg.get("task") is None:
        raise UsageError(
            "task._name: missing; is --config-name the name of a file in --config-dir, without "
            ".yaml?"
        )
    for section in known:
        _check_section(section, cfg.get(section))


def _check_section(section: str, given: Any) -> None:
    settings = OmegaConf.create({"_name": given}) if isinstance(given, str) else given
    if not OmegaConf.is_config(settings) or "_name" not in settings:
        return  # unset, without a choice, or of a command line without Hydra
    name = str(settings._name)
    names, dataclasses = _registered(section)
    if settings._name is None or not names:
        return
    if name not in names:
        raise UsageError(f"{section}._name={name}: unknown{near(name, sorted(names))}")
    dataclass = dataclasses.get(ARCH_MODEL_NAME_REGISTRY.get(name, name))
    if dataclass is None:
        return
    fields = list(dataclass.__dataclass_fields__)
    for key in map(str, settings):
        if key not in fields:
            raise UsageError(f"+{section}.{key}: unknown setting{near(key, fields, shown=0)}")
    try:
        OmegaConf.merge(dataclass, settings)
    except ValidationError as error:
        key = str(error.full_key)
        reason = str(error).splitlines()[0]
        raise UsageError(f"{section}.{key}={settings[key]}: {reason}") from error


def _registered(section: str) -> Tuple[Collection[str], Mapping[str, Any]]:
    """The names that a section can have, and their dataclasses by name."""
    if section == "task":
        return TASK_DATACLASS_REGISTRY, TASK_DATACLASS_REGISTRY
    if section == "model":
        return {*ARCH_MODEL_NAME_REGISTRY, *MODEL_REGISTRY}, MODEL_DATACLASS_REGISTRY
    found = REGISTRIES.get(section, {"registry": {}, "dataclass_registry": {}})
    return found["registry"], found["dataclass_registry"]


def _check_folder(folder: str, words: Sequence[str]) -> None:
    """Let no two jobs of a multirun share a folder: the second would continue the first.

    Args:
        folder: where this job saves its checkpoints.
        words: the command line.

    Raises:
        UsageError: naming the folder.
    """
    if not {"-m", "--multirun"}.intersection(words):
        return
    given = [word for word in words if "=" in word and not word.startswith("-")]
    overrides = OverridesParser.create().parse_overrides(given)
    job = _job()
    shared = [one for one in overrides if one.key_or_group == _FOLDER]
    fixed = bool(shared) and not shared[-1].is_sweep_override() and "${" not in str(given)
    several = any(one.is_sweep_override() for one in overrides)
    if (fixed and several) or _begun.setdefault(folder, job) != job:
        raise UsageError(f"{_FOLDER}={folder}: several jobs of the multirun have it; {_EACH}")


def _job() -> Sequence[str]:
    """The overrides of this job of a multirun, as far as its process knows them."""
    from hydra.core.hydra_config import HydraConfig

    if not HydraConfig.initialized():
        return ()
    return tuple(HydraConfig.get().overrides.task)
