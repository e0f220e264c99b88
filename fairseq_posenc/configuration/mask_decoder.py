"""The flag of the enhanced mask decoder, and which models can have it.

He, Liu, Gao, Chen, arXiv 2006.03654, section 3.2.
"""

from dataclasses import dataclass
from typing import Optional

from fairseq_posenc.configuration.contradictions import refuse_flags, refuse_one_input
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.settings import setting


@dataclass
class MaskDecoderFlags:
    """The flag of the enhanced mask decoder."""

    mask_decoder_layers: Optional[int] = setting(
        0,
        "predict masked tokens by DeBERTa's enhanced mask decoder: learned absolute positions are "
        "added to the input of the last layer, which is applied so many times (2 in the paper)",
        role="model",
        at_least=0,
        at_most=1_000,
    )


def check_mask_decoder(cfg: Options) -> None:
    """Refuse attentions and flags that queries of their own rule out.

    Args:
        cfg: complete configuration of a masked language model.

    Raises:
        UsageError: naming the flag that contradicts ``--mask-decoder-layers``.
    """
    if not cfg.mask_decoder_layers:
        return
    given = f"--mask-decoder-layers {cfg.mask_decoder_layers}"
    refuse_one_input(cfg, given)
    why = {
        "funnel_stages": "a Funnel encoder has layers of its own after its stages",
        "encoder_layerdrop": "the last layer is the decoder, and must not be dropped",
        "causal": "the table counts positions in a text that is seen as a whole",
    }
    refuse_flags(cfg, given, why)
