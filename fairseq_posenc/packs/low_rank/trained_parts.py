"""Training of only some parameters of a model, and validation before the first update.

A trained model keeps most of its parameters when it gets another position encoding.  Training only
the attention leaves all other parameters unchanged, as in arXiv 2408.11382, where trained
translation models get other encodings.
"""

import re
from argparse import Namespace
from dataclasses import dataclass
from typing import Any, Callable, Dict, Optional

from fairseq.trainer import Trainer
from torch import nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.warm_start import POSITION_STATE
from fairseq_posenc.configuration.features import Completed
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.settings import setting
from fairseq_posenc.layers.parameters import in_attention

_POSITIONS = re.compile(rf"\.{POSITION_STATE}\.")
_IN_LAYER = re.compile(r"\.layers\.\d+\.(.*)")


def _of_encoding(name: str) -> bool:
    return _POSITIONS.search(name) is not None


def _of_attention(name: str) -> bool:
    layer = _IN_LAYER.search(name)
    return _of_encoding(name) or (layer is not None and in_attention(layer.group(1)))


#: For each value of ``--train-only``, whether a parameter is trained, as a function of its name.
PARTS: Dict[str, Callable[[str], bool]] = {
    "all": lambda name: True,
    "attention": _of_attention,
    "encoding": _of_encoding,
}


@dataclass
class TrainingFlags:
    """Flags of a training that starts from a model with another position encoding."""

    train_only: Optional[str] = setting(
        "all",
        "parts of the model to train: {choices}; attention means every attention with its layer "
        "norm, and the position encoding; heads for fine-tuning are always trained",
        role="training",
        choices=PARTS,
    )
    validate_at_start: Optional[bool] = setting(
        False,
        "also validate before the first update, to see the effect of another position encoding",
        role="training",
    )


def _part(cfg: Options) -> str:
    return str(option(cfg, "train_only") or "all")


def check_parts(completed: Completed) -> None:
    """Refuse ``--train-only`` with ``--lora-rank``, and ``attention`` for gated units."""
    cfg = completed.cfg
    part, rank = _part(cfg), option(cfg, "lora_rank")
    if part != "all" and rank:
        raise UsageError(
            f"--train-only {part}: --lora-rank {rank} trains only its matrices and parameters that "
            "the base lacks; drop one of the two"
        )
    if part == "attention" and option(cfg, "layer") == "gated":
        raise UsageError(
            f"--train-only {part}: a gated attention unit is attention and feed-forward in one; "
            "give all"
        )


def train_parts(model: nn.Module, cfg: Options) -> None:
    """Freeze the parameters of a new model that ``--train-only`` does not select.

    Parameters that are added later, such as those of a classification head, are trained.

    Raises:
        UsageError: nothing would be trained.
    """
    part = _part(cfg)
    if part == "all":
        return
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(parameter.requires_grad and PARTS[part](name))
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UsageError(
            f"--train-only {part}: --position-encoding {option(cfg, 'position_encoding')} has no "
            "parameters to train; give attention, or all"
        )


def validating_first(begin_epoch: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap *begin_epoch* to validate before the first update with ``--validate-at-start``.

    The log shows the result as update 0, in the form of later validations.  Training seeds its
    random numbers at each update, so the validation does not change the training.
    """

    def wrapper(trainer: Trainer, epoch: int) -> None:
        begin_epoch(trainer, epoch)
        cfg = trainer.cfg
        wanted = option(cfg.model, "validate_at_start") and not cfg.dataset.disable_validation
        if wanted and trainer.get_num_updates() == 0:
            from fairseq_cli.train import validate

            subsets = cfg.dataset.valid_subset.split(",")
            validate(cfg, trainer, trainer.task, Namespace(epoch=epoch), subsets)

    return wrapper
