"""The Funnel encoder: stages that halve the number of tokens, and layers that restore it.

Funnel-Transformer, Dai, Lai, Yang, Le, arXiv 2006.03236, section 2.2 and 2.3.  Between stages, h is
pooled by means of two neighbours, without [CLS], which stays apart.  The first layer of a stage has
pooled queries, and keys and values that are not pooled:

    h' = pool(h),    h ← LayerNorm(h' + Attention(Q = h', K = V = h))

For what is predicted for each token, the last stage, whose tokens stand for s = 2^(stages - 1)
tokens each, is repeated s times and added to the output of the first; further layers follow.

Pooled tokens have the position of the first token that they hold, and [CLS] one as far before the
first of them as they are from each other, so that the positions of each stage are evenly spaced.
Means and keys leave out padding; a pooled token is padding if all that it holds is.
"""

from typing import Any, Dict, List, Optional, Tuple

import torch
from fairseq.data import Dictionary
from torch import Tensor, nn

from fairseq_posenc.attention import Positions
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.configuration.funnel import parse_stages
from fairseq_posenc.flags.options import Options
from fairseq_posenc.stacks.sentence_encoder import SentenceEncoder
from fairseq_posenc.stacks.stack import Kind, Padding, layer_positions


def pool(x: Tensor, mask: Optional[Tensor]) -> Tuple[Tensor, Optional[Tensor]]:
    """[CLS], and means of two tokens each.

    >>> pool(torch.tensor([[[9.0], [1.0], [3.0], [5.0]]]), None)[0].flatten()
    tensor([9., 2., 5.])

    Args:
        x: (B, S, C), starting with [CLS].
        mask: (B, S), True at padding, or None.

    Returns:
        (B, 1 + ⌈(S - 1)/2⌉, C), and the padding of that, or None.
    """
    batch, length, channels = x.shape
    count = length // 2  # pairs, the last of which may be of one token
    odd = 2 * count - (length - 1)
    sizes = (batch, count, 2)
    hidden = x.new_zeros(batch, length, dtype=torch.bool) if mask is None else mask
    hidden = torch.cat((hidden[:, 1:], hidden.new_ones(batch, odd)), dim=1).view(sizes)
    rest = torch.cat((x[:, 1:], x.new_zeros(batch, odd, channels)), dim=1)
    real = (~hidden).unsqueeze(-1).to(x)
    pairs = rest.view(*sizes, channels) * real
    means = pairs.sum(dim=2) / real.sum(dim=2).clamp(min=1)
    pooled = torch.cat((x[:, :1], means), dim=1)
    return pooled, None if mask is None else torch.cat((mask[:, :1], hidden.all(dim=2)), dim=1)


def upsample(x: Tensor, times: int, length: int) -> Tensor:
    """[CLS], and every other token repeated, (B, *length*, C), of (B, S, C)."""
    rest = x[:, 1:].repeat_interleave(times, dim=1)
    return torch.cat((x[:, :1], rest[:, : length - 1]), dim=1)


def _refuse_padding_left(mask: Tensor) -> None:
    if (mask[:, 0] & ~mask.all(dim=1)).any():
        raise UsageError(
            "--funnel-stages: a text is padded on the left, where [CLS] must be; give a task that "
            "pads on the right"
        )


class FunnelEncoder(SentenceEncoder):
    """Encoder of a masked language model whose stages pool the tokens.

    Args:
        cfg: fairseq's nested Transformer configuration, with ``funnel_stages``, and as many layers
            as these and the decoder have.
        dictionary: the dictionary.
        embed_tokens: token embedding (V, E).
    """

    by_text = {"by_token": False}

    def __init__(self, cfg: Options, dictionary: Dictionary, embed_tokens: nn.Embedding) -> None:
        super().__init__(cfg, dictionary, embed_tokens)
        self.stages = parse_stages(cfg.funnel_stages)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Optional[Tensor] = None,
        return_all_hiddens: bool = False,
        token_embeddings: Optional[Tensor] = None,
        padding: Optional[Padding] = None,
        by_token: bool = True,
    ) -> Dict[str, List[Tensor]]:
        """Encode a batch; arguments and result as those of :class:`.TransformerEncoder`.

        Args:
            src_tokens: (B, T), starting with [CLS], padded on the right.
            src_lengths: unused, as in fairseq.
            return_all_hiddens: also return the states between layers, which differ in length.
            token_embeddings: (B, T, C), used instead of the embeddings of *src_tokens*.
            padding: that of *src_tokens*, if it is known already.
            by_token: restore the length; else the states are those of the last stage.

        Raises:
            UsageError: a text is padded on the left.
        """
        x, embedding, padding = self.begin(src_tokens, token_embeddings, padding)
        length, mask = src_tokens.size(1), padding.mask
        if padding.left and mask is not None and not torch.jit.is_tracing():
            _refuse_padding_left(mask)
        unpooled = positions = self.positions_of_layers(x, length, padding, causal=False)

        states = [x]
        layers = iter(self.layers)
        for stage, count in enumerate(self.stages):
            keys: Optional[Tensor] = None
            if stage > 0:
                keys, key_mask = x, mask
                x, mask = pool(x, mask)
                unit, empty = 2**stage, padding.empty
                pooling = self._of_pooled(x, keys.size(1), unit // 2, 2, key_mask, empty)
                positions = self._of_pooled(x, x.size(1), unit, 1, mask, empty)
            for index in range(count):
                layer: Any = next(layers)
                if keys is not None and index == 0:
                    x = layer(x, keys=keys, **layer_positions(layer, pooling))
                else:
                    x = layer(x, **layer_positions(layer, positions))
                states.append(x)
        if by_token:
            first, times = states[self.stages[0]], 2 ** (len(self.stages) - 1)
            x, mask = first + upsample(x, times, length), padding.mask
            for layer in layers:
                x = layer(x, **layer_positions(layer, unpooled))
                states.append(x)
        shown = [state.transpose(0, 1) for state in states] if return_all_hiddens else ()
        return self.finish(src_tokens, x, mask, embedding, shown)

    forward_scriptable = forward

    def _of_pooled(
        self, x: Tensor, length: int, unit: int, step: int, mask: Optional[Tensor], empty: bool
    ) -> Dict[Kind, Positions]:
        """Positions and masks where keys stand for *unit* tokens each, as the base class has them.

        Args:
            x: the queries, (B, T, C).
            length: S, the number of keys.
            unit: distance between neighbouring keys, in tokens.
            step: distance between neighbouring queries, in keys.
            mask: padding of the keys, (B, S), or None.
            empty: whether a text has nothing but padding.
        """
        sizes = (x.size(1), length)
        query_positions, key_positions = (
            torch.arange(-1, n - 1, device=x.device).mul(apart).add(1).unsqueeze(0)
            for n, apart in zip(sizes, (step * unit, unit))
        )
        reach = torch.arange(-length, length + 1, device=x.device)
        bundles: Dict[Kind, Positions] = {}
        for kind in self.kinds:
            encoding = self.encodings[kind[0]]
            shared, transform = encoding.shared_bias, encoding.transform
            logits = None
            if shared is not None:
                logits = shared.at_pairs(query_positions, key_positions, (length + step) * unit)
            given = (False, mask, mask is not None and empty)
            bundle = self.dense_positions(encoding, x, length, *given, logits)
            if transform is not None:
                bundle["table"] = transform.table(query_positions)
                if step > 1:
                    bundle["key_table"] = transform.table(key_positions)
            if encoding.content:
                bundle["query_positions"], bundle["key_positions"] = query_positions, key_positions
                bundle["padding_mask"], bundle["step"] = mask, step
            if encoding.vectors is not None:
                vectors = [module(reach * unit) for module in encoding.vectors.values()]
                bundle["distance_vectors"] = torch.stack(vectors).type_as(x)
            bundles[kind] = bundle
        return bundles
