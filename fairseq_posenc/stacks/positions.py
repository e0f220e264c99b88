"""The encodings of the layers of a stack, and the prepared arguments of the layers."""

from typing import Any, Dict, Hashable, List, Optional, Tuple

import torch
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_posenc.attention import AttentionKernel, Batch, Padding, kernel_of
from fairseq_posenc.attention.functional import tables
from fairseq_posenc.configuration.features import side_encoding
from fairseq_posenc.encodings import Places, PositionEncoding, Stack, build_encodings, parse_pattern
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.registry import class_for
from fairseq_posenc.stacks.assigned import Assigned, AssignedPositions

#: Prepared arguments of the layers, by kind of attention.
Prepared = Dict[Tuple[Hashable, Hashable], Dict[str, Any]]


def read_padding(*sides: Tuple[Tensor, bool]) -> List[Padding]:
    """The padding of several batches, with one read from the device.

    The host has to know whether there is padding, which decides how attention is computed.  Waiting
    for a GPU interrupts its queue of kernels, so all batches are read at once.

    >>> mask = torch.tensor([[False, False, True]])
    >>> [padding.mask is None for padding in read_padding((mask, False), (mask, True))]
    [False, True]

    Args:
        sides: for each batch, the padding (B, S), True at padding, and whether a causal mask hides
            padding on the right from all real tokens.
    """
    if torch.jit.is_tracing():  # the graph has to serve other batches
        return [Padding(mask, left=True, empty=True) for mask, _ in sides]
    answers = []
    for mask, causal in sides:
        visible = mask[:, :-1] & ~mask[:, 1:] if causal else mask
        answers += [visible.any(), mask[:, 0].any(), mask.all(dim=1).any()]
    flags, paddings = iter(torch.stack(answers).tolist()), []
    for (mask, _), visible, left, empty in zip(sides, flags, flags, flags):
        paddings.append(Padding(mask if visible else None, left, empty))
    return paddings


def count_positions(relative: bool, length: int, padding: Padding, device: torch.device) -> Tensor:
    """Positions of a sequence, (1|B, S), int64, counted from the first real token if necessary.

    All rows share one set of positions without padding on the left, or if encodings are *relative*,
    that is, depend on distances alone.  Padding has the position of a neighbour.
    """
    if padding.mask is None or relative or not padding.left:
        return torch.arange(length, device=device).unsqueeze(0)
    return (torch.cumsum((~padding.mask).long(), dim=1) - 1).clamp(min=0)


class StackPositions:
    """The encodings of the layers of a stack, and the prepared arguments of the layers.

    This is no module: the stack owns the encodings' modules.
    """

    def __init__(self, cfg: Options, stack: Stack, dictionary: Dictionary) -> None:
        side, value = option(cfg, stack.side), side_encoding(cfg, stack.side)
        period, keep = parse_pattern(value), side.layers_to_keep  # layers such as 0,2, or None
        self.kept = sorted(map(int, keep.split(","))) if keep else list(range(side.layers))
        self.encodings: Dict[str, PositionEncoding] = build_encodings(cfg, stack, value)
        names = [period[index % len(period)] for index in self.kept]
        # fairseq's constructors build the layers in order and do not pass their index
        self.next_encoding = iter([self.encodings[name] for name in names])
        self.kernel = kernel_of(cfg)
        self.causal = stack.causal
        maker = class_for(AssignedPositions, cfg)
        #: assigns positions, or None
        self.assigner: Optional[AssignedPositions] = None
        if cfg.position_ids is not None or maker is not AssignedPositions:
            self.assigner = maker(cfg, stack, dictionary)
        #: one kernel of each kind; they are modules of their layers
        self.kinds: Dict[Tuple[Hashable, Hashable], AttentionKernel] = {}

    def number(self, layers: List[List[AttentionKernel]]) -> None:
        """Tell the kernels the index of their layer, and select one of each kind.

        Each of *layers* has its self-attentions, in order; one of gated units can have two.
        """
        for place, kernels in enumerate(layers):
            index = self.kept[place] if len(layers) == len(self.kept) else place
            for kernel in kernels:
                kernel.set_layer(index, layers[0][0])
                self.kinds[kernel.kind] = kernel

    def refuse_cache(self) -> None:
        """Refuse a cache if further tokens would change the positions of cached keys."""
        if self.assigner is not None:
            self.assigner.refuse_cache()

    def assigned(
        self, padding: Padding, tokens: Tensor, training: bool, remembered: int = 0
    ) -> Optional[Assigned]:
        """The assigned positions of a batch, or None.

        *remembered* is the number of tokens in a memory before *tokens* (B, S); they have
        positions, too.

        Raises:
            UsageError: the sequences are longer than a table of positions.
        """
        length = longest = remembered + tokens.size(1)
        for encoding in self.encodings.values():
            if encoding.bounded and length > encoding.stack.max_positions:
                raise encoding.too_long(length)
        assigned = None
        if self.assigner is not None:
            counted = count_positions(remembered > 0, length, padding, tokens.device)
            assigned = self.assigner.of_batch(tokens, counted, training)
            if assigned is not None and assigned.places is not None and self.assigner.rule:
                longest = assigned.places.bound  # by the rule, whatever the number of tokens
        for encoding in self.encodings.values():
            if encoding.transform is not None and longest > encoding.transform.reach:
                encoding.transform.exceeded(longest)
        return assigned

    def prepare(self, batch: Batch) -> Prepared:
        """The prepared arguments of the self-attentions, by kind."""
        prepared: Prepared = {}
        shared: Dict[Hashable, Dict[str, Any]] = {}
        for kind, kernel in self.kinds.items():
            places = places_of(batch, kernel.encoding.relative)
            if kind[0] in shared:  # all but the table
                prepared[kind] = {**shared[kind[0]], **tables(kernel, batch, places)}
            else:
                prepared[kind] = shared[kind[0]] = kernel.prepare(batch, places)
        return prepared


def places_of(batch: Batch, relative: bool) -> Places:
    """The positions of the queries and keys of a batch; see :func:`count_positions`."""
    queries = batch.like.size(1)
    if batch.assigned is not None:
        return batch.assigned._replace(queries=batch.assigned.queries[:, -queries:])
    keys = count_positions(relative, batch.length, batch.padding, batch.like.device)
    return Places(keys[:, batch.length - queries :], keys, batch.length, by_index=True)
