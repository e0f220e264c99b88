"""A stack's position encodings, a batch's positions, and the layer arguments made from both.

The positions and the layers' arguments are computed once per forward pass.
"""

import copy
from typing import Any, Callable, Dict, Hashable, List, NamedTuple, Optional, Tuple, cast

import torch
import torch.nn.functional as F
from fairseq.data import Dictionary
from torch import Tensor, nn

from fairseq_posenc.attention import AttentionKernel, Batch, Padding
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.warm_start import State, adapt_heads, adapt_positions
from fairseq_posenc.configuration.features import side_encoding
from fairseq_posenc.encodings import Places, PositionEncoding, Stack, build_encodings, parse
from fairseq_posenc.encodings.position_ids import FLAG, PositionRule, Ruled, Tokens, class_of_rule
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.registry import class_for
from fairseq_posenc.layers.parameters import apply_norms_and_biases, share_layers

#: Prepared arguments of the layers, keyed by the kind of attention.
Prepared = Dict[Tuple[Hashable, Hashable], Dict[str, Any]]


class Assigned(NamedTuple):
    """The positions that are assigned to the tokens of a batch, in place of 0, 1, 2, …."""

    rows: Tensor  # for each token, its row in the table of positions, (1|B, S), int64
    bound: int  # a number above all positions
    places: Optional[Places]  # positions for attention; None for 0, 1, 2, …


class AssignedPositions:
    """Assigns the positions of ``--position-ids`` to the batches of a stack.

    Flags can replace it; see :func:`~fairseq_posenc.flags.registry.register_replacement`.
    """

    def __init__(self, options: Options, stack: Stack, dictionary: Dictionary) -> None:
        self.rule: Optional[PositionRule] = None
        if options.position_ids is not None:
            rule = class_of_rule(options.position_ids)
            self.rule = rule(options, stack, dictionary.indices)
        self.padding = dictionary.pad()
        self.side, self.most = stack.side, stack.max_positions
        #: the start of messages: the flag that assigns positions, and its value
        self.flag = "" if self.rule is None else f"{FLAG} {options.position_ids}: "

    def refuse_cache(self) -> None:
        """Refuse a cache if further tokens would change the positions of cached keys."""

    def of_batch(self, tokens: Tensor, counted: Tensor, training: bool) -> Optional[Assigned]:
        """The assigned positions of a batch, or None.

        *tokens* (B, S) exclude the M tokens of a memory; *counted* (1|B, M + S) are the positions
        of all tokens, from 0 on, including those of the memory.
        """
        if self.rule is None:
            return None
        return self.assigned(*self.ruled(tokens), by_index=False)

    def ruled(self, tokens: Tensor) -> Tuple[Ruled, int]:
        """The rule's positions of *tokens* (B, S), 0 at padding; and a number above all of them."""
        assert self.rule is not None
        real = tokens.ne(self.padding)
        ruled = self.rule.places(Tokens(tokens, real))
        ruled = ruled.each(lambda positions: positions.masked_fill(~real, 0))
        every = torch.cat([each for each in ruled if each is not None])
        least, most = torch.stack((every.min(), every.max())).tolist()
        if least < 0:
            raise UsageError(
                f"{self.flag}a position of the {self.side} is {least}; give positions from 0 on"
            )
        return ruled, int(most) + 1

    def assigned(self, ruled: Ruled, bound: int, by_index: bool, remedy: str = "") -> Assigned:
        """Check positions and make an :class:`Assigned` of them.

        All positions are below *bound*.  *by_index* tells whether distances in the layers are
        differences of indices.  The error for too many positions also suggests *remedy*.
        """
        if bound > self.most:
            raise UsageError(
                f"{self.flag}the positions of a batch go up to {bound - 1}, but the {self.side} "
                f"has {self.most} positions; give shorter texts{remedy}, or a model with more"
            )
        if ruled.layers is None:
            return Assigned(ruled.table, bound, None)
        return Assigned(ruled.table, bound, Places(ruled.layers, ruled.layers, bound, by_index))


def read_padding(*sides: Tuple[Tensor, bool]) -> List[Padding]:
    """The padding of several batches, read from the device in one transfer.

    The host has to know whether there is padding, because that decides how attention is computed.
    Waiting for a GPU interrupts its queue of kernels, so all batches are read at once.

    >>> mask = torch.tensor([[False, False, True]])
    >>> [padding.mask is None for padding in read_padding((mask, False), (mask, True))]
    [False, True]

    Args:
        sides: for each batch, the padding (B, S), True at padding, and whether a causal mask hides
            padding on the right from all real tokens.
    """
    if torch.jit.is_tracing():  # the traced graph has to work for other batches
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
    """Positions of a sequence, (1|B, S), int64.

    All rows share 0, 1, 2, … without padding on the left, or if the encoding is *relative* (depends
    on distances alone).  Otherwise each row counts from its first real token, and padding has the
    position of the nearest real token.
    """
    if padding.mask is None or relative or not padding.left:
        return torch.arange(length, device=device).unsqueeze(0)
    return (torch.cumsum((~padding.mask).long(), dim=1) - 1).clamp(min=0)


def kernels_in(module: nn.Module) -> List[AttentionKernel]:
    """The self-attentions in *module*, in order."""
    return [each for each in module.modules() if isinstance(each, AttentionKernel)]


class PositionedStack:
    """Mixin that adds position encodings to fairseq's encoder and decoder.

    :meth:`compose` runs before fairseq's constructor, which builds the layers, and
    :meth:`register_positions` after it.
    """

    #: True if a checkpoint's position parameters must match; strict_advice is the error's last part
    strict_positions = False
    strict_advice = ""
    #: the layers' position encodings, keyed by name; their modules belong to the stack
    encodings: Dict[str, PositionEncoding]
    #: the encoding of the first layer and, without a pattern, of all layers
    encoding: PositionEncoding
    #: assigns positions to tokens; None for the positions 0, 1, 2, …
    assigner: Optional[AssignedPositions]

    add_module: Callable[[str, Optional[nn.Module]], None]
    layers: Any
    embed_positions: Any
    padding_idx: int
    training: bool

    def compose(self, cfg: Options, stack: Stack, dictionary: Dictionary) -> Options:
        """Build the layers' position encodings; returns the *cfg* for fairseq's constructor."""
        side, value = option(cfg, stack.side), side_encoding(cfg, stack.side)
        period, keep = parse(value).period, side.layers_to_keep  # indices such as 0,2, or None
        self.kept = sorted(map(int, keep.split(","))) if keep else list(range(side.layers))
        self.encodings = build_encodings(cfg, stack, value)
        self.encoding = next(iter(self.encodings.values()))
        names = [period[index % len(period)] for index in self.kept]
        # fairseq's constructors build the layers in order and do not pass their index
        self.next_encoding = iter([self.encodings[name] for name in names])
        maker, self.assigner = class_for(AssignedPositions, cfg), None
        if cfg.position_ids is not None or maker is not AssignedPositions:
            self.assigner = maker(cfg, stack, dictionary)
        cfg = copy.copy(cfg)  # the other stack may have a different encoding
        cfg.no_token_positional_embeddings = self.encoding.input is None
        return cfg

    def register_positions(self, cfg: Options) -> None:
        """Register the modules of the encodings, number the layers and apply the norms."""
        for encoding in self.encodings.values():
            for name, module in encoding.modules.items():
                self.add_module(name, module)
        # iterating over a list with LayerDrop would skip layers
        layers = [kernels for kernels in map(kernels_in, self.layers.children()) if kernels]
        #: one kernel of each kind, keyed by kind; layers, not the stack, own these modules
        self.kinds: Dict[Tuple[Hashable, Hashable], AttentionKernel] = {}
        for place, kernels in enumerate(layers):
            index = self.kept[place] if len(layers) == len(self.kept) else place
            for kernel in kernels:  # a layer of gated units can have two
                kernel.set_layer(index, layers[0][0])
                self.kinds[kernel.kind] = kernel
        apply_norms_and_biases(cast(nn.Module, self), cfg)
        share_layers(self.layers.children(), cfg)

    def kernels(self) -> List[AttentionKernel]:
        """The self-attentions of the stack, in order."""
        return kernels_in(cast(nn.Module, self))

    def assigned(self, padding: Padding, tokens: Tensor, remembered: int = 0) -> Optional[Assigned]:
        """The assigned positions of a batch, or None.

        *tokens* (B, S) follow *remembered* tokens of a memory, which also have positions.

        Raises:
            UsageError: the sequences are longer than a table of positions allows.
        """
        length = longest = remembered + tokens.size(1)
        for encoding in self.encodings.values():
            side, most = encoding.stack.side, encoding.stack.max_positions
            if encoding.bounded and length > most:
                raise UsageError(
                    f"--position-encoding {encoding.name}: a sequence of {length} tokens is longer "
                    f"than the {side}'s table of {most} positions; shorten it, or train with more "
                    "positions or with an encoding that has no table"
                )
        assigned = None
        if self.assigner is not None:
            counted = count_positions(remembered > 0, length, padding, tokens.device)
            assigned = self.assigner.of_batch(tokens, counted, self.training)
            if assigned is not None and assigned.places is not None and self.assigner.rule:
                longest = assigned.places.bound  # the rule decides, not the number of tokens
        for encoding in self.encodings.values():
            if encoding.transform is not None and longest > encoding.transform.reach:
                encoding.transform.exceeded(longest)
        return assigned

    def added_positions(self, tokens: Tensor, assigned: Optional[Assigned]) -> Tensor:
        """The vectors (1|B, S, E) that are added to the embeddings of all *tokens* (B, S)."""
        if assigned is None:
            return self.embed_positions(tokens)
        # the tables take tokens, not positions: a text without padding yields rows 0, 1, …
        text = tokens.new_full((1, assigned.bound), self.padding_idx + 1)
        rows = self.embed_positions(text)[0]  # (bound, E)
        return F.embedding(assigned.rows, rows)

    def prepare(self, batch: Batch) -> Prepared:
        """The prepared arguments of the self-attentions, keyed by kind.

        They are the result of a kernel's ``prepare``, the ``table`` of the encoding's transform
        and, if there are more keys than queries, its ``key_table``.
        """
        prepared: Prepared = {}
        shared: Dict[Hashable, Dict[str, Any]] = {}
        new, padding, device = batch.like.size(1), batch.padding, batch.like.device
        projected = batch.projected or new
        for kind, kernel in self.kinds.items():
            transform, places = kernel.encoding.transform, batch.assigned
            if places is None:
                keys = count_positions(kernel.encoding.relative, batch.length, padding, device)
                places = Places(keys, keys, batch.length, by_index=True)
            places = places._replace(queries=places.queries[:, -new:])
            if kind[0] not in shared:
                shared[kind[0]] = kernel.prepare(batch, places)
            prepared[kind] = dict(shared[kind[0]])
            if transform is not None:
                prepared[kind]["table"] = transform.table(places.queries, kernel.number)
                if projected != new:
                    keys = places.keys[:, -projected:]
                    prepared[kind]["key_table"] = transform.table(keys, kernel.number)
        return prepared

    def upgrade_state_dict_named(self, state_dict: State, name: str) -> State:
        """Adapt a checkpoint that is older or has a different encoding, and log the differences."""
        super().upgrade_state_dict_named(state_dict, name)  # type: ignore[misc]  # fairseq's
        adapt_positions(self, state_dict, name)
        adapt_heads(self, state_dict, name)
        return state_dict
