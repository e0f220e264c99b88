"""Models of which a part is trained (:mod:`fairseq_posenc.layers.trained_parts`)."""

from torch import nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.layers.trained_parts import PARTS


def train_parts(model: nn.Module, cfg: Options) -> None:
    """Exempt from training what ``--train-only`` leaves out of a model that was just built.

    Parameters that are added later, such as those of a classification head, are trained.

    Args:
        cfg: the configuration of the model, complete.

    Raises:
        UsageError: nothing would be trained, or another flag says what is.
    """
    part = option(cfg, "train_only") or "all"
    if part == "all":
        return
    rank, layer = option(cfg, "lora_rank"), option(cfg, "layer")
    if rank:
        raise UsageError(
            f"--train-only {part}: --lora-rank {rank} says what is trained: its matrices, and what "
            "the base lacks; drop one of the two"
        )
    if part == "attention" and layer == "gated":
        raise UsageError(
            f"--train-only {part}: a gated attention unit is attention and feed-forward in one; "
            "give all"
        )
    is_trained = PARTS[part]
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(parameter.requires_grad and is_trained(name))
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UsageError(
            f"--train-only {part}: --position-encoding {option(cfg, 'position_encoding')} has no "
            "parameters to train; give attention, or all"
        )
