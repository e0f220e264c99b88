"""DeBERTa's enhanced mask decoder: absolute positions enter where masked tokens are predicted.

He, Liu, Gao, Chen, arXiv 2006.03654, section 3.2, and the released code.  The last of L layers is
the decoder.  With H, the output of layer L - 1, and a table P of absolute positions, the decoder is
applied n times,

    I_1 = H + P,    I_{m+1} = Layer_L(Q = I_m, K = V = H),

and the head predicts masked tokens from I_{n+1}.  (In the paper, I_1 = P; the released code adds H,
without which n = 1 and P = 0 would not give BERT.)  Fine-tuning uses the L layers only.
"""

from dataclasses import dataclass
from typing import Any, Optional

from fairseq.data import Dictionary
from torch import Tensor, nn

from fairseq_posenc.attention import Batch
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.configuration.features import (
    Completed,
    refuse_flags,
    refuse_one_input,
    register_feature,
)
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.registry import register_replacement
from fairseq_posenc.flags.settings import setting
from fairseq_posenc.models.masked_lm import MODEL
from fairseq_posenc.models.roberta import SentenceEncoder
from fairseq_posenc.stacks.encoder import Encoded, Requested
from fairseq_posenc.stacks.positions import count_positions


@dataclass
class MaskDecoderFlags:
    """The flag of the enhanced mask decoder."""

    mask_decoder_layers: Optional[int] = setting(
        0,
        "predict masked tokens by DeBERTa's enhanced mask decoder: learned absolute positions are "
        "added to the input of the last layer, which is applied this many times (2 in the paper)",
        at_least=0,
        at_most=1_000,
    )


def check_mask_decoder(completed: Completed) -> None:
    """Refuse attentions and flags that do not work with the mask decoder."""
    cfg = completed.cfg
    if not cfg.mask_decoder_layers:
        return
    why = {
        "encoder_layerdrop": "the last layer is the decoder, and must not be dropped",
        "encoder_layers_to_keep": "the last layer is the decoder, and must be kept",
        "random_positions": "the decoder always uses the positions 0, 1, 2 and so on",
        "causal": "the decoder is for models whose tokens see the whole text",
        "position_ids": "the decoder always uses the positions 0, 1, 2 and so on",
    }
    flag = f"--mask-decoder-layers {cfg.mask_decoder_layers}"
    refuse_one_input(cfg, flag)
    refuse_flags(cfg, flag, why)


register_feature(MaskDecoderFlags, models=[MODEL], check=check_mask_decoder)


@register_replacement("mask_decoder_layers", of=SentenceEncoder)
class MaskDecodingEncoder(SentenceEncoder):
    """Encoder of a masked language model whose last layer decodes the masked tokens.

    Arguments are those of the base class.
    """

    def __init__(self, cfg: Options, dictionary: Dictionary, embed_tokens: nn.Embedding) -> None:
        super().__init__(cfg, dictionary, embed_tokens)
        self.times = int(cfg.mask_decoder_layers)
        self.embed_mask_positions = nn.Embedding(cfg.num_positions, cfg.encoder.embed_dim)

    def run_layers(self, batch: Batch, requested: Requested) -> Encoded:
        """Apply the layers and the last norm; with ``predicting`` the result is I_{n+1}.

        Raises:
            UsageError: the texts are longer than the table P.
        """
        if not requested.predicting:
            return super().run_layers(batch, requested)
        x, prepared = batch.like, self.prepare(batch)
        *layers, last = self.layers
        states = [x]
        for layer in layers:
            x = layer(x, **prepared[layer.self_attn.kind])
            states.append(x)
        x, below = x + self._absolute(batch), x
        decoder: Any = last
        for _ in range(self.times):
            x = decoder(x, keys=below, **prepared[decoder.self_attn.kind])
            states.append(x)
        x = x if self.layer_norm is None else self.layer_norm(x)
        states = [state.transpose(0, 1) for state in states] if requested.states else []
        return Encoded(x, states)

    def _absolute(self, batch: Batch) -> Tensor:
        """The rows of P for every token, (1|B, T, C)."""
        length, rows = batch.length, self.embed_mask_positions.num_embeddings
        if length > rows:
            raise UsageError(
                f"a text has {length} tokens, but --mask-decoder-layers has a table of {rows} "
                "positions; give shorter texts, or train with a larger --num-positions"
            )
        positions = count_positions(False, length, batch.padding, batch.like.device)
        return self.embed_mask_positions(positions)
