"""DeBERTa's enhanced mask decoder: absolute positions enter where masked tokens are predicted.

He, Liu, Gao, Chen, arXiv 2006.03654, section 3.2, and the released code: the last of L layers is
the decoder.  With H, the output of layer L - 1, and a table P of absolute positions, it is applied
n times,

    I_1 = H + P,    I_{m+1} = Layer_L(Q = I_m, K = V = H),

and I_{n+1} is what the head predicts masked tokens from.  (The paper says I_1 = P; the released
code adds H, without which n = 1 would not be BERT for P = 0.)  Fine-tuning has the L layers alone.
"""

from typing import Any

import torch
from fairseq.data import Dictionary
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.flags.options import Options
from fairseq_posenc.stacks.encoder import Encoded, Wanted
from fairseq_posenc.stacks.positions import Keys, Padding, count_positions, positions_of
from fairseq_posenc.stacks.sentence_encoder import SentenceEncoder


class MaskDecodingEncoder(SentenceEncoder):
    """Encoder of a masked language model whose last layer decodes the masked tokens.

    Args:
        cfg: fairseq's nested Transformer configuration, with ``mask_decoder_layers``.
        dictionary: the dictionary.
        embed_tokens: token embedding (V, E).
    """

    def __init__(self, cfg: Options, dictionary: Dictionary, embed_tokens: nn.Embedding) -> None:
        super().__init__(cfg, dictionary, embed_tokens)
        self.times = int(cfg.mask_decoder_layers)
        self.embed_mask_positions = nn.Embedding(cfg.num_positions, cfg.encoder.embed_dim)

    def run_layers(self, x: Tensor, padding: Padding, wanted: Wanted) -> Encoded:
        """Apply the layers and the last norm.

        Args:
            x: input of the first layer, (B, T, C).
            padding: the padding of *x*.
            wanted: with ``by_mask`` the result is I_{n+1} of the decoder, else the output of
                layer L.

        Raises:
            UsageError: the texts are longer than the table P.
        """
        if not wanted.by_mask:
            return super().run_layers(x, padding, wanted)
        length = x.size(1)
        positions = self.positions.of_layers(x, Keys(length, padding), self.training)
        *layers, last = self.layers
        states = [x]
        for layer in layers:
            x = layer(x, **positions_of(layer, positions))
            states.append(x)
        x, below = x + self._absolute(length, padding, x.device), x
        decoder: Any = last
        for _ in range(self.times):
            x = decoder(x, keys=below, **positions_of(decoder, positions))
            states.append(x)
        x = x if self.layer_norm is None else self.layer_norm(x)
        return Encoded(x, states if wanted.states else [], [])

    def _absolute(self, length: int, padding: Padding, device: torch.device) -> Tensor:
        """The rows of P for every token, (1|B, T, C)."""
        rows = self.embed_mask_positions.num_embeddings
        if length > rows:
            raise UsageError(
                f"a text has {length} tokens, but --mask-decoder-layers has a table of {rows} "
                "positions; give shorter texts, or train with more --num-positions"
            )
        return self.embed_mask_positions(count_positions(False, length, padding, device))
