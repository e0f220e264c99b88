"""Positions and masks of an encoder or decoder, computed once per forward pass."""

import copy
from typing import Any, Callable, Dict, Hashable, Iterator, List, NamedTuple, Optional, Tuple, cast

import torch
from torch import Tensor, nn

from fairseq_posenc.attention import AttentionKernel, Positions, kernel_of
from fairseq_posenc.attention.base import Tokens
from fairseq_posenc.attention.functional import add_terms, aligned, product_dtype
from fairseq_posenc.attention.normalisers import visible_keys
from fairseq_posenc.checkpoints.warm_start import State, adapt_positions
from fairseq_posenc.configuration.stacks import side_encoding
from fairseq_posenc.encodings import PositionEncoding, Stack, build_encodings, parse_pattern
from fairseq_posenc.encodings.random_positions import sample_positions
from fairseq_posenc.flags.options import Layer, Options, option
from fairseq_posenc.layers.initialisation import apply_norms_and_biases
from fairseq_posenc.layers.sharing import share_layers


class Padding(NamedTuple):
    """The padding of a batch, and what it means for positions and masks.

    Args:
        mask: (B, S), True at padding; None if no real token could see any.
        left: whether a sequence begins with padding.
        empty: whether a sequence has nothing but padding.
        first_text: length of the first text of each pair, (B, 1), for patterns that depend on it.
    """

    mask: Optional[Tensor] = None
    left: bool = False
    empty: bool = False
    first_text: Optional[Tensor] = None

    def empty_rows(self, causal: bool) -> bool:
        """True if a query may see no key at all."""
        return self.mask is not None and (self.empty or (causal and self.left))

    def after(self, memory: int) -> "Padding":
        """The same padding with *memory* tokens in front, visible to all."""
        if self.mask is None:
            return self
        seen = self.mask.new_zeros(self.mask.size(0), memory)
        return Padding(torch.cat((seen, self.mask), dim=1))


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


#: Name of the composition, and pattern of the attention, of the layers that share their positions.
Kind = Tuple[str, Optional[Hashable]]


class PositionedStack:
    """Mixin that adds position encodings to fairseq's encoder and decoder.

    :meth:`compose` runs before fairseq's constructor, which builds the layers, and
    :meth:`own_positions` after it.
    """

    #: True if a checkpoint's position state must match; *strict_advice* ends the error message
    strict_positions = False
    strict_advice = ""

    encodings: Dict[str, PositionEncoding]
    add_module: Callable[[str, Optional[nn.Module]], None]
    modules: Callable[[], Iterator[nn.Module]]
    layers: Any
    training: bool

    def compose(self, cfg: Options, stack: Stack) -> Options:
        """Build the position encodings of the layers.

        Args:
            cfg: fairseq's nested Transformer configuration with the encodings' flags.
            stack: the properties that encodings depend on.

        Returns:
            the configuration for fairseq's constructor, with this side's choice of input table.
        """
        side, value = option(cfg, stack.side), side_encoding(cfg, stack.side)
        period, keep = parse_pattern(value), side.layers_to_keep  # layers such as 0,2, or None
        kept = sorted(map(int, keep.split(","))) if keep else range(side.layers)
        encodings = build_encodings(cfg, stack, value)
        self.__dict__["encodings"] = encodings  # nn.Module is not initialised yet
        # fairseq's constructor builds the layers in order and does not pass their index
        names = [period[index % len(period)] for index in kept]
        self.__dict__["kept"] = list(kept)
        self.__dict__["next_encoding"] = iter([encodings[name] for name in names])
        self.__dict__["causal"] = stack.causal
        self.__dict__["kernel"] = kernel_of(cfg)
        self.__dict__["explicit_masks"] = self.kernel.explicit_masks(cfg)
        self.__dict__["scales_by_length"] = self.kernel.scales_by_length(cfg)
        self.__dict__["sample_from"], self.__dict__["untie_cls"] = (
            cfg.random_positions,
            cfg.untie_cls,
        )
        cfg = copy.copy(cfg)  # the other side may have another encoding
        cfg.no_token_positional_embeddings = self.encoding.input is None
        return cfg

    next_encoding: Iterator[PositionEncoding]
    kept: List[int]
    kinds: Dict[Kind, Optional[AttentionKernel]]
    causal: bool
    kernel: Any
    explicit_masks: bool
    scales_by_length: bool
    sample_from: Optional[int]
    untie_cls: bool

    def own_positions(self, cfg: Options) -> None:
        """Register the encodings' modules, number the attention layers and apply the norms."""
        del self.__dict__["next_encoding"]
        for encoding in self.encodings.values():
            for name, module in encoding.modules.items():
                self.add_module(name, module)
        kernels = [module for module in self.modules() if isinstance(module, AttentionKernel)]
        for index, kernel in enumerate(kernels):
            kernel.set_layer_index(self.kept[index] if len(kernels) == len(self.kept) else index)
            kernel.share_parameters(kernels[0])
        # one of each pattern; not a module of its own here
        kinds: Dict[Kind, Optional[AttentionKernel]]
        kinds = {(k.encoding.name, k.pattern): k for k in kernels if k.pattern is not None}
        self.__dict__["kinds"] = kinds or {(name, None): None for name in self.encodings}
        apply_norms_and_biases(cast(nn.Module, self), cfg)
        share_layers(self.layers.children(), cfg)  # to iterate over them may leave some out

    @property
    def encoding(self) -> PositionEncoding:
        """The composition of the first layer, the only one unless there is a pattern."""
        return next(iter(self.encodings.values()))

    def check_length(self, length: int) -> None:
        """Refuse sequences longer than a table of positions.

        Args:
            length: S, in tokens.

        Raises:
            UsageError: naming both lengths.
        """
        for encoding in self.encodings.values():
            if encoding.bounded and length > encoding.stack.max_positions:
                raise encoding.too_long(length)
            if encoding.transform is not None:
                encoding.transform.check_length(length)

    def positions_of_layers(
        self, x: Tensor, length: int, padding: Padding, causal: bool, remembered: int = 0
    ) -> Dict[Kind, Positions]:
        """Positions and masks for the self-attention, by the kind of a layer.

        Args:
            x: input of the first layer for the new tokens, (B, T, C).
            length: S, the number of tokens so far, new ones included.
            padding: that of the tokens so far.
            causal: hide later keys.
            remembered: how many of them are in a memory, which layers project anew.
        """
        bundles: Dict[Kind, Positions] = {}
        sampled = None  # positions (S) for --random-positions, the same in all layers
        if self.training and self.sample_from is not None:
            sampled = sample_positions(length, self.sample_from, self.untie_cls, x.device)
        for kind, kernel in self.kinds.items():
            encoding = self.encodings[kind[0]]
            key_positions = count_positions(encoding.relative, length, padding, x.device)
            key_positions = key_positions if sampled is None else sampled[key_positions]
            query_positions = key_positions[:, length - x.size(1) :]
            if kernel is None:
                logits, shared = None, encoding.shared_bias
                if shared is not None:
                    logits = shared(query_positions, key_positions, cls_first=not padding.left)
                given = (causal, padding.mask, padding.empty_rows(causal))
                bundle = self.dense_positions(encoding, x, length, *given, logits)
                if encoding.content or self.kernel.needs_positions:
                    bundle["query_positions"] = query_positions
                    bundle["key_positions"] = key_positions
                    bundle["padding_mask"] = padding.mask
                if encoding.vectors is not None:
                    bundle["distance_vectors"] = encoding.distance_vectors(x.size(1), length, x)
            else:
                of_padding = (causal, padding.mask, padding.left)
                counted = torch.arange(length, device=x.device) if sampled is None else sampled
                logits, first = encoding.shared_bias, padding.first_text
                tokens = Tokens(x.size(1), length, *of_padding, counted, logits, x, first)
                bundle = kernel.sparse_positions(tokens)
            if encoding.transform is not None:
                bundle["table"] = encoding.transform.table(query_positions)
                if remembered:
                    bundle["key_table"] = encoding.transform.table(key_positions)
            bundles[kind] = bundle
        return bundles

    def dense_positions(
        self,
        encoding: PositionEncoding,
        x: Tensor,
        length: int,
        causal: bool,
        mask: Optional[Tensor],
        empty_rows: bool,
        logits: Optional[Tensor],
    ) -> Positions:
        """Masks and logits for attention to all keys, and the factor by their number.

        Args:
            encoding: the composition of the layers.
            x: the queries, (B, T, C).
            length: S, the number of keys.
            causal: hide later keys.
            mask: padding of the keys, (B, S), or None.
            empty_rows: whether a query may see no key at all.
            logits: content-free ones, (1|B, 1|H, T, S), or None.
        """
        kernel, dtype, sizes = self.kernel, product_dtype(x), (x.size(1), length)
        in_bias = self.explicit_masks or logits is not None or encoding.content
        bias, later_hidden = kernel.masks(*sizes, causal, mask, bool(in_bias), x)
        if logits is not None:
            bias = add_terms(bias, logits.to(dtype))
        bundle: Positions = {
            "bias": None if bias is None else aligned(bias.to(dtype)),
            "causal": later_hidden,
            "empty_rows": empty_rows,
        }
        if self.scales_by_length:
            counts = visible_keys(*sizes, causal, mask, x.device)
            bundle["length_factor"] = kernel.length_factor(encoding.options, counts)
        return bundle

    def upgrade_state_dict_named(self, state_dict: State, name: str) -> State:
        """Adapt an older or differently encoded checkpoint, logging changes of position state."""
        super().upgrade_state_dict_named(state_dict, name)  # type: ignore[misc]  # fairseq's
        adapt_positions(self, state_dict, name)
        return state_dict


def count_positions(
    relative: bool,
    length: int,
    padding: Padding,
    device: torch.device,
) -> Tensor:
    """Positions of a sequence, counted from the first real token if necessary.

    All rows share one set of positions if an offset has no effect, or if there is no padding on the
    left.

    Args:
        relative: whether only distances matter to what receives the positions.
        length: S.
        padding: that of the batch.
        device: device of the result.

    Returns:
        (1, S) or (B, S), int64, from 0; padding gets the position of a neighbour.
    """
    if padding.mask is None or relative or not padding.left:
        return torch.arange(length, device=device).unsqueeze(0)
    return (torch.cumsum((~padding.mask).long(), dim=1) - 1).clamp(min=0)


def layer_positions(layer: Layer, bundles: Dict[Kind, Positions]) -> Positions:
    """The bundle of *layer*, empty for fairseq's ``BaseLayer``, which has no encoding."""
    encoding = getattr(layer, "encoding", None)
    return {} if encoding is None else bundles[encoding.name, layer.self_attn.pattern]
