"""``--optimizer amos``: an Adam variant with a schedule and weight decay per tensor.

Tian and Parikh 2022, arXiv 2210.11693, Algorithm 1; RoFormer section 4.8 compares it with AdamW.
The implementation is that of the package pytorch_optimizer.
"""

from dataclasses import dataclass, field
from typing import Any, Dict, List, Sequence

from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from omegaconf import II

from fairseq_posenc.errors import UsageError, flag_of
from fairseq_posenc.extras import import_extra
from fairseq_posenc.options import option


@dataclass
class AmosConfig(FairseqDataclass):
    """Flags of Amos."""

    amos_beta: float = field(
        default=0.999, metadata={"help": "decay of the mean square of a tensor's gradient"}
    )
    amos_momentum: float = field(
        default=0.0,
        metadata={"help": "decay of the running mean of the updates; 0 disables it"},
    )
    amos_c: float = field(
        default=0.25, metadata={"help": "c in c_t: how fast the weight decay is reduced"}
    )
    amos_d: float = field(
        default=0.25, metadata={"help": "d in d_t: how fast the learning rate is reduced"}
    )
    amos_eps: float = field(
        default=1e-18, metadata={"help": "added to the mean square of the gradient"}
    )
    lr: List[float] = II("optimization.lr")


@register_optimizer("amos", dataclass=AmosConfig)
class FairseqAmos(FairseqOptimizer):
    """Amos, with fairseq's parameters and learning rate.

    The learning rate is ξ in the paper, about 1/√N for N updates.  It needs no decay: use
    ``--lr-scheduler fixed`` with a warm-up.

    Args:
        cfg: the flags.
        params: parameters, or groups of them.

    Raises:
        UsageError: the package is not installed, or a flag is out of range.
    """

    def __init__(self, cfg: AmosConfig, params: Any) -> None:
        super().__init__(cfg)
        for name in ("amos_beta", "amos_momentum"):
            if not 0.0 <= option(cfg, name) < 1.0:
                raise UsageError(
                    f"{flag_of(name)} {option(cfg, name)}: must be at least 0 and below 1"
                )
        for name in ("amos_c", "amos_d", "amos_eps"):
            if option(cfg, name) < 0.0:
                raise UsageError(f"{flag_of(name)} {option(cfg, name)}: must be at least 0")
        library = import_extra("pytorch_optimizer", "--optimizer amos")
        self._optimizer = library.Amos(params, **self.optimizer_config)

    @property
    def optimizer_config(self) -> Dict[str, Any]:
        """Settings that take precedence over those of a checkpoint when a run resumes."""
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
        """Not supported, as Amos has a schedule per tensor; fairseq asks before flattening them.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            "--optimizer amos: has a schedule per tensor, and --fp16 would flatten all tensors "
            "into one; also give --fp16-no-flatten-grads (--ddp-backend fully_sharded is not "
            "supported)"
        )
