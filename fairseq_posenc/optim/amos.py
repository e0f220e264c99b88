"""``--optimizer amos``: Adam with a schedule and a weight decay of its own for every tensor.

Tian and Parikh 2022, arXiv 2210.11693, Algorithm 1; RoFormer section 4.8 compares it with AdamW.
The computation is that of the package pytorch_optimizer.
"""

from dataclasses import dataclass, field
from typing import Any, Dict, List, Sequence

from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from omegaconf import II

from fairseq_posenc.errors import UsageError, flag_of
from fairseq_posenc.extras import import_extra


@dataclass
class AmosConfig(FairseqDataclass):
    """Flags of Amos."""

    amos_beta: float = field(
        default=0.999, metadata={"help": "decay of the mean square of a tensor's gradient"}
    )
    amos_momentum: float = field(
        default=0.0,
        metadata={"help": "decay of the running mean of the updates; 0 keeps none, in no memory"},
    )
    amos_c: float = field(
        default=0.25, metadata={"help": "how soon the weight decay becomes smaller: c of c_t"}
    )
    amos_d: float = field(
        default=0.25, metadata={"help": "how soon the learning rate becomes smaller: d of d_t"}
    )
    amos_eps: float = field(
        default=1e-18, metadata={"help": "added to the mean square of the gradient"}
    )
    lr: List[float] = II("optimization.lr")


@register_optimizer("amos", dataclass=AmosConfig)
class FairseqAmos(FairseqOptimizer):
    """Amos, with the parameters and the learning rate that fairseq gives.

    The learning rate is ξ of the paper, about 1/√N for N updates.  It needs no decay: give
    ``--lr-scheduler fixed`` and a warm-up.

    Args:
        cfg: the flags.
        params: parameters, or groups of them.

    Raises:
        UsageError: the package is not installed, or a flag is out of range.
    """

    def __init__(self, cfg: AmosConfig, params: Any) -> None:
        super().__init__(cfg)
        for name in ("amos_beta", "amos_momentum"):
            if not 0.0 <= getattr(cfg, name) < 1.0:
                raise UsageError(
                    f"{flag_of(name)} {getattr(cfg, name)}: must be at least 0 and below 1"
                )
        for name in ("amos_c", "amos_d", "amos_eps"):
            if getattr(cfg, name) < 0.0:
                raise UsageError(f"{flag_of(name)} {getattr(cfg, name)}: must be at least 0")
        library = import_extra("pytorch_optimizer", "--optimizer amos")
        self._optimizer = library.Amos(params, **self.optimizer_config)

    @property
    def optimizer_config(self) -> Dict[str, Any]:
        """What wins over a checkpoint's settings when the training goes on."""
        rates: Any = self.cfg.lr
        return {
            "lr": rates[0] if isinstance(rates, Sequence) else rates,
            "beta": self.cfg.amos_beta,
            "momentum": self.cfg.amos_momentum,
            "c_coef": self.cfg.amos_c,
            "d_coef": self.cfg.amos_d,
            "eps": self.cfg.amos_eps,
        }

    @property
    def supports_flat_params(self) -> bool:
        """No: scale and schedule are those of a tensor. fairseq asks where it would join tensors.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            "--optimizer amos: has a schedule for every tensor, and --fp16 would join them; give "
            "--fp16-no-flatten-grads, too (it cannot work with --ddp-backend fully_sharded)"
        )
