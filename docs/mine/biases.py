"""BitFit, Ben Zaken et al. 2022, arXiv 2106.10199: trains only the biases of a trained model."""

from dataclasses import dataclass
from typing import Any, Optional

import torch

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.reading import PARTIAL, read_checkpoint
from fairseq_posenc.configuration.features import Completed, register_feature
from fairseq_posenc.flags.options import option
from fairseq_posenc.flags.settings import setting
from fairseq_posenc.models import FAMILIES
from fairseq_posenc.models.family import CHANGES, PartlySaved


@dataclass
class BiasFlags:
    """The flag of BitFit."""

    bias_base: Optional[str] = setting(
        None, "checkpoint of a base model; only its biases are trained and saved", role="free"
    )


def check_biases(completed: Completed) -> None:
    """Refuse the flag for models without biases, and for models that cannot be saved in part."""
    path, model = option(completed.cfg, "bias_base"), FAMILIES[completed.model].class_
    if path and (completed.cfg.no_bias or not issubclass(model, PartlySaved)):
        raise UsageError(f"--bias-base {path}: this model cannot train biases alone; drop the flag")


def train_biases(model: Any, cfg: Any) -> None:
    """Load the base, train its biases alone, and leave the rest out of checkpoints."""
    path = option(cfg, "bias_base")
    if not path:
        return
    model.load_state_dict(read_checkpoint(path)["model"])
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith("bias"))
    model.left_out = frozenset(name for name in model.state_dict() if not name.endswith("bias"))
    model.register_buffer("biases_alone", torch.ones(1))


register_feature(BiasFlags, check=check_biases)
CHANGES.append(train_biases)
PARTIAL["biases_alone"] = "holds biases alone; give a checkpoint of a whole model"
