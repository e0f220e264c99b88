"""What layers know of positions and masks, worked out once a forward pass."""

import math
from typing import Any, Dict, List, Optional, Tuple, cast

import torch
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_posenc.attention import AttentionKernel, Positions, kernel_of
from fairseq_posenc.attention.base import Kind, Tokens
from fairseq_posenc.attention.functional import add_terms, additive_mask, aligned, product_dtype
from fairseq_posenc.attention.normalisers import visible_keys
from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.configuration.stacks import side_encoding
from fairseq_posenc.encodings import PositionEncoding, Stack, build_encodings, parse_pattern
from fairseq_posenc.encodings.bias_sum import SharedBiasSum
from fairseq_posenc.flags.options import Layer, Options, option
from fairseq_posenc.stacks.explicit import ExplicitPositions
from fairseq_posenc.stacks.padding import Keys, Padding


def find_padding(*sides: Tuple[Tensor, bool]) -> List[Padding]:
    """The padding of several batches, with one read from the device.

    Whether there is padding decides how attention is computed, so the host has to wait for the
    answer.  On a GPU that stops the queue of kernels: all questions of a step are asked at once.

    >>> mask = torch.tensor([[False, False, True]])
    >>> [found.mask is None for found in find_padding((mask, False), (mask, True))]
    [False, True]

    Args:
        sides: the padding of each batch, (B, S), True at padding; and whether a causal mask hides
            padding on the right, the usual kind in training, from all real tokens.
    """
    if torch.jit.is_tracing():  # a graph serves other batches, too
        return [Padding(mask, left=True, empty=True) for mask, _ in sides]
    answers = []
    for mask, causal in sides:
        visible = mask[:, :-1] & ~mask[:, 1:] if causal else mask
        answers += [visible.any(), mask[:, 0].any(), mask.all(dim=1).any()]
    flags = iter(torch.stack(answers).tolist())
    return [
        Padding(mask if visible else None, left, empty)
        for (mask, _), visible, left, empty in zip(sides, flags, flags, flags)
    ]


def count_positions(relative: bool, length: int, padding: Padding, device: torch.device) -> Tensor:
    """Positions of a sequence, counted from the first real token if necessary.

    All rows share one set of positions if an offset has no effect, or if there is no padding on the
    left.

    Args:
        relative: whether only distances matter to what receives the positions.
        length: S.
        padding: the padding of the batch.
        device: device of the result.

    Returns:
        (1, S) or (B, S), int64, from 0; padding gets the position of a neighbour.
    """
    if padding.mask is None or relative or not padding.left:
        return torch.arange(length, device=device).unsqueeze(0)
    return (torch.cumsum((~padding.mask).long(), dim=1) - 1).clamp(min=0)


class StackPositions:
    """The encodings of a stack's layers, and what these layers get from them in a forward pass.

    This is no module: the stack owns the encodings' modules.

    Args:
        cfg: fairseq's nested Transformer configuration with the encodings' flags.
        stack: the properties of the stack that encodings depend on.
        dictionary: that of its tokens.
    """

    def __init__(self, cfg: Options, stack: Stack, dictionary: Dictionary) -> None:
        side, value = option(cfg, stack.side), side_encoding(cfg, stack.side)
        period, keep = parse_pattern(value), side.layers_to_keep  # layers such as 0,2, or None
        self.kept = sorted(map(int, keep.split(","))) if keep else list(range(side.layers))
        self.encodings: Dict[str, PositionEncoding] = build_encodings(cfg, stack, value)
        names = [period[index % len(period)] for index in self.kept]
        # fairseq's constructors build the layers in order and do not pass their index
        self.next_encoding = iter([self.encodings[name] for name in names])
        self.kernel: Any = kernel_of(cfg)
        self.abilities = self.kernel.abilities_for(cfg)
        name = self.abilities.longest
        #: the most tokens that the kernel has parameters for
        self.longest: float = math.inf if name is None else option(cfg, name)
        transforms = [e.transform for e in self.encodings.values() if e.transform is not None]
        #: the most positions that all transforms take without a warning
        self.reach = min((transform.reach for transform in transforms), default=math.inf)
        self.causal = stack.causal
        #: numbers that differ between batches would be a reason to compile layers again
        self.compiled = bool(option(cfg, "compile_layers", False))
        explicit = ExplicitPositions(cfg, stack, dictionary)
        #: makes positions that are not counted, if there can be any
        self.explicit = explicit if explicit.sampler or explicit.rule else None
        #: the kernels of all kinds that differ in the tables of their transforms alone
        self.families: Dict[Tuple[str, Any], List[AttentionKernel]] = {}

    def number(self, layers: List[List[AttentionKernel]]) -> None:
        """Tell the kernels the index of their layer, and find those that share positions.

        Args:
            layers: the self-attentions of each layer of the stack, in order; a layer of gated
                units can have two.
        """
        kinds: Dict[Kind, AttentionKernel] = {}  # one kernel of each; no module of this object
        for place, kernels in enumerate(layers):
            index = self.kept[place] if len(layers) == len(self.kept) else place
            for kernel in kernels:
                kernel.place(index, layers[0][0])
                encoding, kernel.number = kernel.encoding, index
                terms = getattr(kernel, "position_terms", None)  # not all kernels take any
                if terms is not None:
                    encoding.layer_terms[index] = terms
                transform = encoding.transform
                variant = None if transform is None else transform.variant(index)
                kernel.kind = Kind(encoding.name, kernel.pattern, variant)
                kinds[kernel.kind] = kernel
        for one in kinds.values():
            self.families.setdefault(one.kind[:2], []).append(one)

    def check_length(self, length: int) -> None:
        """Refuse sequences that are longer than a table of positions or of the kernel.

        Args:
            length: S, in tokens.

        Raises:
            UsageError: naming both lengths.
        """
        for encoding in self.encodings.values():
            if encoding.bounded and length > encoding.stack.max_positions:
                raise encoding.too_long(length)
        ruled = self.explicit is not None and self.explicit.rule is not None
        if length > self.reach and not ruled:  # else positions tell
            self._say_how_far(length)
        if length > self.longest:
            raise UsageError(
                f"{flag_of(str(self.abilities.longest))} {self.longest:g}: a sequence has {length} "
                "tokens; shorten it"
            )

    def _say_how_far(self, reach: int) -> None:
        """Warn where a transform gets positions beyond those of training, up to *reach* - 1."""
        for encoding in self.encodings.values():
            if encoding.transform is not None and reach > encoding.transform.reach:
                encoding.transform.exceeded(reach)

    def refuse_cache(self) -> None:
        """Refuse a cache where a longer text would change the positions of its keys."""
        if self.explicit is not None and self.explicit.spreads:
            raise UsageError(
                "--evaluation-positions spread: positions depend on the length of the whole text, "
                "so nothing can be generated with a cache; for generation give --model-overrides "
                "\"{'evaluation_positions': 'counted'}\""
            )

    def with_explicit(
        self, padding: Padding, tokens: Tensor, training: bool, remembered: int = 0
    ) -> Padding:
        """*padding* with the positions of a batch, if they are not counted.

        Args:
            padding: the padding of *tokens*.
            tokens: (B, S).
            training: whether ``--random-positions`` has an effect.
            remembered: number of tokens before them in a memory, which get positions, too.
        """
        if self.explicit is None:
            return padding
        length = remembered + tokens.size(1)
        counted = count_positions(remembered > 0, length, padding, tokens.device)
        explicit = self.explicit.of_batch(tokens, counted, training)
        if explicit is not None and self.explicit.rule is not None:
            self._say_how_far(length if explicit.of_layers is None else explicit.reach)
        return padding._replace(explicit=explicit)

    def of_layers(self, x: Tensor, keys: Keys) -> Dict[Kind, Positions]:
        """Positions and masks for the self-attention, by the kind of a layer.

        Args:
            x: input of the first layer for the new tokens, (B, T, C).
            keys: the keys, new tokens included.
        """
        bundles: Dict[Kind, Positions] = {}
        for (name, pattern), kernels in self.families.items():
            kernel = kernels[0] if pattern is not None else None
            bundle, tables = self._bundle(self.encodings[name], kernel, kernels, x, keys)
            for each, table in zip(kernels, tables):
                bundles[each.kind] = cast(Positions, {**bundle, **table})
        return bundles

    def _bundle(
        self,
        encoding: PositionEncoding,
        kernel: Optional[AttentionKernel],
        kernels: List[AttentionKernel],
        x: Tensor,
        keys: Keys,
    ) -> Tuple[Positions, List[Dict[str, Tensor]]]:
        """Masks, logits, and what content-dependent terms read; and tables of the transform."""
        padding, causal, abilities = keys.padding, keys.causal, self.abilities
        sizes, pooled = (x.size(1), keys.length), keys.unit * keys.step > 1
        explicit, uneven, reach = padding.explicit, False, keys.length
        if pooled:
            of_queries, of_keys = keys.of_pooled(x.size(1), x.device)
            reach = (keys.length + keys.step) * keys.unit
        else:
            if explicit is not None and explicit.of_layers is not None:
                of_keys, uneven, reach = explicit.of_layers, not explicit.even, explicit.reach
            else:
                of_keys = count_positions(encoding.relative, keys.length, padding, x.device)
            of_queries = of_keys[:, keys.length - x.size(1) :]
            if explicit is not None and explicit.of_queries is not None:
                of_queries = explicit.of_queries
        by_distance = None
        if encoding.shared_bias is not None and not (pooled or uneven):
            by_distance = self._by_distance(encoding.shared_bias, x, keys)
        if kernel is not None:
            bundle = self._sparse(encoding, kernel, x, keys)
        elif by_distance is not None:
            bundle = by_distance
        else:
            logits = None
            if encoding.shared_bias is not None and (pooled or uneven):
                logits = encoding.shared_bias.at_pairs(of_queries, of_keys, reach)
            elif encoding.shared_bias is not None:
                logits = encoding.shared_bias(of_queries, of_keys, cls_first=not padding.left)
            in_bias = abilities.causal_in_bias or logits is not None or encoding.content
            # the causal mask of the fused kernel needs T = S, and cannot go with a bias
            fused = padding.mask is None and not in_bias and x.size(1) == keys.length
            apart = fused or abilities.causal_apart
            queries, hide = (1, False) if apart else (x.size(1), causal)
            bias = additive_mask(queries, keys.length, hide, padding.mask, x)
            if logits is not None:
                bias = add_terms(bias, logits.to(product_dtype(x)))
            bundle = {
                "bias": None if bias is None else aligned(bias.to(product_dtype(x))),
                "causal": causal and apart,
                "empty_rows": padding.mask is not None and padding.empty_rows(causal),
            }
            if encoding.content or abilities.needs_positions:
                bundle["query_positions"], bundle["key_positions"] = of_queries, of_keys
                bundle["padding_mask"] = padding.mask
            if encoding.content and pooled:
                bundle["step"] = keys.step
            if encoding.content and uneven:
                bundle["uneven"] = True
            if encoding.vectors is not None:
                reached = (x.size(1), reach if uneven else keys.length)
                distances = (keys.unit, keys.step)
                bundle["distance_vectors"] = encoding.distance_vectors(*reached, x, *distances)
        if kernel is None and abilities.length_factor is not None:
            number = not (self.compiled or torch.jit.is_tracing())
            counts = visible_keys(*sizes, causal, padding.mask, x.device, number)
            bundle["length_factor"] = abilities.length_factor(counts)
        tables: List[Dict[str, Tensor]] = []
        for one in kernels:
            tables.append({})
            if encoding.transform is not None:
                variant = () if one.kind.variant is None else (one.kind.variant,)
                tables[-1]["table"] = encoding.transform.table(of_queries, *variant)
                if keys.remembered or keys.step > 1:
                    tables[-1]["key_table"] = encoding.transform.table(of_keys, *variant)
        return bundle, tables

    def _by_distance(self, logits: SharedBiasSum, x: Tensor, keys: Keys) -> Optional[Positions]:
        """What the kernel takes in place of a bias of all pairs, or None if it needs that."""
        if not logits.distance_alone or x.size(1) != keys.length:
            return None
        return self.kernel.by_distance(logits, keys.length, keys.causal, keys.padding.mask, x)

    def _sparse(
        self,
        encoding: PositionEncoding,
        kernel: AttentionKernel,
        x: Tensor,
        keys: Keys,
    ) -> Positions:
        """Masks and logits of a kernel's own pattern."""
        places, reach, explicit = None, keys.length, keys.padding.explicit
        if explicit is not None and explicit.row is not None:
            places, reach = explicit.row, explicit.reach
        if places is None:
            places = torch.arange(keys.length, device=x.device)
        tokens = Tokens(
            x.size(1),
            keys.length,
            keys.causal,
            keys.padding.mask,
            keys.padding.left,
            places,
            reach,
            encoding.shared_bias,
            x,
            keys.padding.first_text,
        )
        return kernel.sparse_positions(tokens)


def positions_of(layer: Layer, bundles: Dict[Kind, Positions]) -> Positions:
    """The bundle of *layer*, empty for fairseq's ``BaseLayer``, which has no encoding."""
    return bundles[layer.self_attn.kind] if hasattr(layer, "encoding") else {}
