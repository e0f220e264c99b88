"""An encoder that applies its layers several times."""

from dataclasses import dataclass
from typing import Any, Optional

from fairseq_posenc.attention import Batch
from fairseq_posenc.configuration.features import Completed, refuse_flags, register_feature
from fairseq_posenc.flags.registry import register_replacement
from fairseq_posenc.flags.settings import setting
from fairseq_posenc.stacks.encoder import Encoded, Requested, TransformerEncoder


@dataclass
class LoopFlags:
    """The flag of the looped encoder."""

    loops: Optional[int] = setting(
        0,
        "how many times the encoder applies its layers; 0 for an ordinary encoder",
        at_least=0,
        at_most=100,
    )


def check(completed: Completed) -> None:
    """Refuse flags that cannot be combined with loops."""
    cfg = completed.cfg
    if cfg.loops:
        why = {"encoder_layerdrop": "each loop would drop different layers"}
        refuse_flags(cfg, f"--loops {cfg.loops}", why)


register_feature(LoopFlags, models=["posenc_transformer"], check=check)


@register_replacement("loops", of=TransformerEncoder)
class LoopedEncoder(TransformerEncoder):
    """An encoder whose loops share all layers (Dehghani et al. 2019, arXiv 1807.03819)."""

    def __init__(self, cfg: Any, *arguments: Any, **named: Any) -> None:
        super().__init__(cfg, *arguments, **named)
        self.loops = int(cfg.loops)

    def run_layers(self, batch: Batch, requested: Requested) -> Encoded:
        """In every loop, apply the layers and the last norm to the input (B, T, C) of a batch."""
        for _ in range(self.loops - 1):
            batch = batch._replace(like=super().run_layers(batch, Requested()).x)
        return super().run_layers(batch, requested)
