"""``--optimizer amos``: an Adam variant with a schedule and weight decay per tensor.

Tian and Parikh 2022, arXiv 2210.11693, Algorithm 1; RoFormer section 4.8 compares it with AdamW.
The implementation comes from the package pytorch_optimizer.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Dict, List, Sequence

from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from omegaconf import II

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.flags.settings import check_settings

_DECAY = {"at_least": 0, "below": 1}
_SPEED = {"at_least": 0, "at_most": 1_000_000}


def _flag(default: float, help: str, **bounds: float) -> Any:
    return field(default=default, metadata={"help": help, **bounds})


@dataclass
class AmosConfig(FairseqDataclass):
    """Flags of Amos."""

    amos_beta: float = _flag(0.999, "decay of the mean square of a tensor's gradient", **_DECAY)
    amos_momentum: float = _flag(
        0.0, "decay of the running mean of the updates; 0 disables it", **_DECAY
    )
    amos_c: float = _flag(0.25, "c in c_t: how fast the weight decay is reduced", **_SPEED)
    amos_d: float = _flag(0.25, "d in d_t: how fast the learning rate is reduced", **_SPEED)
    amos_eps: float = _flag(1e-18, "added to the mean square of the gradient", above=0, at_most=1)
    lr: List[float] = II("optimization.lr")


@register_optimizer("amos", dataclass=AmosConfig)
class FairseqAmos(FairseqOptimizer):
    """Amos as an optimiser of fairseq.

    ``--lr`` is ξ in the paper, about 1/√N for N updates.  Amos needs no decay of the learning rate:
    use ``--lr-scheduler fixed`` with a warm-up.
    """

    def __init__(self, cfg: AmosConfig, params: Any) -> None:
        super().__init__(cfg)
        check_settings(cfg, dataclasses.fields(AmosConfig))
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
        """Raises an error before fairseq flattens all tensors: Amos has a schedule per tensor."""
        raise UsageError(
            "--optimizer amos: has a schedule per tensor, but --fp16 would flatten all tensors "
            "into one; also give --fp16-no-flatten-grads (--ddp-backend fully_sharded is not "
            "supported)"
        )
