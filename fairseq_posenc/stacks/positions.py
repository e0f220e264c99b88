"""What the layers of an encoder or decoder know of positions, worked out once a forward pass."""

from typing import Any, Dict, Hashable, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from fairseq_posenc.attention import AttentionKernel, Positions, kernel_of
from fairseq_posenc.attention.base import Tokens
from fairseq_posenc.attention.functional import add_terms, aligned, product_dtype
from fairseq_posenc.attention.normalisers import visible_keys
from fairseq_posenc.configuration.stacks import side_encoding
from fairseq_posenc.encodings import PositionEncoding, Stack, build_encodings, parse_pattern
from fairseq_posenc.encodings.random_positions import sample_positions
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.stacks.padding import Padding, count_positions

#: Name of the composition, and pattern of the attention, of the layers that share their positions.
Kind = Tuple[str, Optional[Hashable]]


class Keys(NamedTuple):
    """The keys that the self-attention of a layer has, and how its queries lie among them.

    Args:
        length: S.
        padding: the padding of the keys.
        causal: hide later keys.
        remembered: how many of the keys are in a memory, which layers project anew.
        unit: distance between neighbouring keys, in tokens; above 1 where tokens are pooled.
        step: distance between neighbouring queries, in keys; 2 where only the queries are pooled.
    """

    length: int
    padding: Padding
    causal: bool = False
    remembered: int = 0
    unit: int = 1
    step: int = 1

    @property
    def pooled(self) -> bool:
        """True if a query or a key stands for several tokens."""
        return self.unit * self.step > 1

    def positions(self, queries: int, relative: bool, device: torch.device) -> Sequence[Tensor]:
        """Positions of the queries (1|B, T) and of the keys (1|B, S).

        Pooled tokens have the position of the first token that they hold, and [CLS] is as far
        before the first of them as they are from each other.

        Args:
            queries: T; the queries are the last T of S tokens, unless they are pooled.
            relative: whether only distances matter to what receives the positions.
            device: device of the result.
        """
        if not self.pooled:
            keys = count_positions(relative, self.length, self.padding, device)
            return keys[:, self.length - queries :], keys
        sizes = ((queries, self.step * self.unit), (self.length, self.unit))
        return [
            torch.arange(-1, n - 1, device=device).mul(apart).add(1).unsqueeze(0)
            for n, apart in sizes
        ]


class StackPositions:
    """The encodings of a stack's layers, and what these layers get from them in a forward pass.

    This is no module: the stack owns the encodings' modules.

    Args:
        cfg: fairseq's nested Transformer configuration with the encodings' flags.
        stack: the properties of the stack that encodings depend on.
    """

    def __init__(self, cfg: Options, stack: Stack) -> None:
        side, value = option(cfg, stack.side), side_encoding(cfg, stack.side)
        period, keep = parse_pattern(value), side.layers_to_keep  # layers such as 0,2, or None
        self.kept = sorted(map(int, keep.split(","))) if keep else list(range(side.layers))
        self.encodings: Dict[str, PositionEncoding] = build_encodings(cfg, stack, value)
        names = [period[index % len(period)] for index in self.kept]
        # fairseq's constructors build the layers in order and do not pass their index
        self.next_encoding = iter([self.encodings[name] for name in names])
        self.kernel: Any = kernel_of(cfg)
        self.abilities = self.kernel.abilities_for(cfg)
        self.causal, self.untie_cls = stack.causal, cfg.untie_cls
        self.sample_from: Optional[int] = cfg.random_positions
        self.kinds: Dict[Kind, Optional[AttentionKernel]] = {}

    def number(self, kernels: List[AttentionKernel]) -> None:
        """Tell the kernels of the layers their index, and find those that share positions.

        Args:
            kernels: the self-attentions of the stack, in order.
        """
        for index, kernel in enumerate(kernels):
            layer = self.kept[index] if len(kernels) == len(self.kept) else index
            kernel.place(layer, kernels[0])
        # one kernel of each pattern; it is no module of this object
        self.kinds = {(k.encoding.name, k.pattern): k for k in kernels if k.pattern is not None}
        self.kinds = self.kinds or {(name, None): None for name in self.encodings}

    def of_layers(self, x: Tensor, keys: Keys, training: bool) -> Dict[Kind, Positions]:
        """Positions and masks for the self-attention, by the kind of a layer.

        Args:
            x: input of the first layer for the new tokens, (B, T, C).
            keys: the keys, new tokens included.
            training: whether ``--random-positions`` has an effect.
        """
        sampled = None  # positions (S) for --random-positions, the same in all layers
        if training and self.sample_from is not None:
            sampled = sample_positions(keys.length, self.sample_from, self.untie_cls, x.device)
        return {
            kind: self._bundle(self.encodings[kind[0]], kernel, x, keys, sampled)
            for kind, kernel in self.kinds.items()
        }

    def _bundle(
        self,
        encoding: PositionEncoding,
        kernel: Optional[AttentionKernel],
        x: Tensor,
        keys: Keys,
        sampled: Optional[Tensor],
    ) -> Positions:
        of_queries, of_keys = keys.positions(x.size(1), encoding.relative, x.device)
        if sampled is not None:
            of_queries, of_keys = sampled[of_queries], sampled[of_keys]
        if kernel is None:
            bundle = self._dense(encoding, x, keys, of_queries, of_keys)
        else:
            counted = torch.arange(keys.length, device=x.device) if sampled is None else sampled
            bundle = kernel.sparse_positions(
                Tokens(
                    x.size(1),
                    keys.length,
                    keys.causal,
                    keys.padding.mask,
                    keys.padding.left,
                    counted,
                    encoding.shared_bias,
                    x,
                    keys.padding.first_text,
                )
            )
        if encoding.transform is not None:
            bundle["table"] = encoding.transform.table(of_queries)
            if keys.remembered or keys.step > 1:
                bundle["key_table"] = encoding.transform.table(of_keys)
        return bundle

    def _dense(
        self,
        encoding: PositionEncoding,
        x: Tensor,
        keys: Keys,
        of_queries: Tensor,
        of_keys: Tensor,
    ) -> Positions:
        """Masks and logits for attention to all keys, and what content-dependent terms read."""
        padding, causal, abilities = keys.padding, keys.causal, self.abilities
        sizes, dtype = (x.size(1), keys.length), product_dtype(x)
        logits = None
        if encoding.shared_bias is not None:
            if keys.pooled:
                reach = (keys.length + keys.step) * keys.unit
                logits = encoding.shared_bias.at_pairs(of_queries, of_keys, reach)
            else:
                logits = encoding.shared_bias(of_queries, of_keys, cls_first=not padding.left)
        in_bias = abilities.explicit_masks or logits is not None or bool(encoding.content)
        bias, later_hidden = abilities.masks(*sizes, causal, padding.mask, in_bias, x)
        if logits is not None:
            bias = add_terms(bias, logits.to(dtype))
        bundle: Positions = {
            "bias": None if bias is None else aligned(bias.to(dtype)),
            "causal": later_hidden,
            "empty_rows": padding.empty_rows(causal),
        }
        if abilities.length_factor is not None:
            counts = visible_keys(*sizes, causal, padding.mask, x.device)
            bundle["length_factor"] = abilities.length_factor(counts)
        if encoding.content or abilities.needs_positions:
            bundle["query_positions"], bundle["key_positions"] = of_queries, of_keys
            bundle["padding_mask"] = padding.mask
        if keys.pooled and encoding.content:
            bundle["step"] = keys.step
        if encoding.vectors is not None:
            bundle["distance_vectors"] = encoding.distance_vectors(*sizes, x, keys.unit, keys.step)
        return bundle
