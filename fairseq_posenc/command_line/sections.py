"""Mistakes in the configuration of ``fairseq-hydra-train`` that would otherwise go unnoticed.

fairseq loads the ``common.user_dir`` after Hydra has composed the configuration, and then fills in
the defaults of all sections; that is when they are checked here.
"""

import sys
from typing import Any, Callable, Dict, Sequence

from fairseq.dataclass.configs import FairseqConfig
from hydra.core.hydra_config import HydraConfig

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.flags.usage import near

_FOLDER = "checkpoint.save_dir"
#: The overrides of the multirun jobs that this process has trained, by their folder.
_begun: Dict[str, Sequence[str]] = {}


def checked(add_defaults: Callable[..., None]) -> Callable[..., None]:
    """Refuse sections that fairseq does not read, and a folder that another job has written."""

    def wrapper(cfg: Any) -> None:
        known = list(FairseqConfig.__dataclass_fields__)
        for section in cfg:
            # fairseq-hydra-train itself adds the other one
            if section not in (*known, "job_logging_cfg"):
                raise UsageError(f"+{section}: no section of fairseq{near(str(section), known)}")
        if cfg.get("task") is None:
            raise UsageError(
                "task._name: missing; is --config-name the name of a file in --config-dir, without "
                ".yaml?"
            )
        if {"-m", "--multirun"}.intersection(sys.argv[1:]) and HydraConfig.initialized():
            _check_folder(str(cfg.checkpoint.save_dir))
        add_defaults(cfg)

    return wrapper


def _check_folder(folder: str) -> None:
    """Let no two jobs of a multirun share a folder: the second would continue the first."""
    job = tuple(HydraConfig.get().overrides.task)
    if _begun.setdefault(folder, job) != job:
        raise UsageError(
            f"{_FOLDER}={folder}: several jobs of the multirun have it; give each its own by what "
            f"differs, such as '{_FOLDER}=runs/${{model.position_encoding}}'"
        )
