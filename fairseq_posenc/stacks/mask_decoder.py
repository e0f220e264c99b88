"""DeBERTa's enhanced mask decoder: absolute positions enter where masked tokens are predicted.

He, Liu, Gao, Chen, arXiv 2006.03654, section 3.2, and the released code: the last of L layers is
the decoder.  With H, the output of layer L - 1, and a table P of absolute positions, it is applied
n times,

    I_1 = H + P,    I_{m+1} = Layer_L(Q = I_m, K = V = H),

and I_{n+1} is what the head predicts masked tokens from.  (The paper says I_1 = P; the released
code adds H, without which n = 1 would not be BERT for P = 0.)  Fine-tuning has the L layers alone.
"""

from typing import Any, Dict, List, Optional

import torch
from fairseq.data import Dictionary
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.flags.options import Options
from fairseq_posenc.stacks.sentence_encoder import SentenceEncoder
from fairseq_posenc.stacks.stack import Padding, count_positions, layer_positions


class MaskDecodingEncoder(SentenceEncoder):
    """Encoder of a masked language model whose last layer decodes the masked tokens.

    Args:
        cfg: fairseq's nested Transformer configuration, with ``mask_decoder_layers``.
        dictionary: the dictionary.
        embed_tokens: token embedding (V, E).
    """

    by_mask = {"decode_masks": True}

    def __init__(self, cfg: Options, dictionary: Dictionary, embed_tokens: nn.Embedding) -> None:
        super().__init__(cfg, dictionary, embed_tokens)
        self.times = int(cfg.mask_decoder_layers)
        self.embed_mask_positions = nn.Embedding(cfg.num_positions, cfg.encoder.embed_dim)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        return_all_hiddens: bool = False,
        token_embeddings: Optional[Tensor] = None,
        padding: Optional[Padding] = None,
        decode_masks: bool = False,
    ) -> Dict[str, List[Tensor]]:
        """Encode a batch; arguments and result as those of :class:`.TransformerEncoder`.

        Args:
            src_tokens: (B, T).
            src_lengths: unused, as in fairseq.
            return_all_hiddens: also return the states between layers.
            token_embeddings: (B, T, C), used instead of the embeddings of *src_tokens*.
            padding: that of *src_tokens*, if it is known already.
            decode_masks: the output is that of the decoder, I_{n+1}.

        Raises:
            UsageError: the texts are longer than the table P.
        """
        if not decode_masks:
            return super().forward(
                src_tokens, src_lengths, return_all_hiddens, token_embeddings, padding
            )
        x, embedding, padding = self.begin(src_tokens, token_embeddings, padding)
        length = src_tokens.size(1)
        positions = self.positions_of_layers(x, length, padding, causal=False)
        *layers, last = self.layers
        states = [x]
        for layer in layers:
            x = layer(x, **layer_positions(layer, positions))
            states.append(x)
        x, below = x + self._absolute(length, padding, x.device), x
        decoder: Any = last
        for _ in range(self.times):
            x = decoder(x, keys=below, **layer_positions(decoder, positions))
            states.append(x)
        shown = [state.transpose(0, 1) for state in states] if return_all_hiddens else ()
        return self.finish(src_tokens, x, padding.mask, embedding, shown)

    forward_scriptable = forward

    def _absolute(self, length: int, padding: Padding, device: torch.device) -> Tensor:
        """The rows of P for every token, (1|B, T, C)."""
        rows = self.embed_mask_positions.num_embeddings
        if length > rows:
            raise UsageError(
                f"a text has {length} tokens, but --mask-decoder-layers has a table of {rows} "
                "positions; give shorter texts, or train with more --num-positions"
            )
        return self.embed_mask_positions(count_positions(False, length, padding, device))
