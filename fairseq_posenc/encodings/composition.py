"""Compositions of encodings, ``--position-encoding a+b``."""

from typing import Any, Dict, Iterator, List, Optional

import torch
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings.base import Places, QKVTransform, Rotation, SharedBias, Stack
from fairseq_posenc.encodings.content import ContentBiasSum
from fairseq_posenc.encodings.distance import all_distances
from fairseq_posenc.encodings.registry import Encoding, Pattern, parse
from fairseq_posenc.flags.options import Options


class SharedBiasSum(nn.ModuleDict):
    """Sum of content-free *terms*, by name of the encoding; [CLS] may be untied.

    TUPE, Ke, He, Liu, arXiv 2006.15595.  [CLS] is not a word and its position carries no
    information, so all logits v_ij that involve it can be reset (Eq. 9, with [CLS] at position 0):

        reset_θ(v, i, j) = θ1    from [CLS], i = 0 (also to [CLS])
                           θ2    from other tokens to [CLS], j = 0
                           v_ij  otherwise
    """

    def __init__(self, terms: Dict[str, SharedBias], options: Options, stack: Stack) -> None:
        super().__init__(terms)
        self.untie_cls = bool(options.untie_cls)
        #: whether all logits are a function of the distance alone
        self.distance_alone = all(t.distance_alone for t in terms.values()) and not self.untie_cls
        computed = [term.cls_logits() is not None for term in terms.values()]
        enough = any(computed) if options.cls_reset == "sum" else all(computed)
        free = nn.Parameter(torch.zeros(2, stack.num_heads)) if not enough else None
        self.theta: Optional[nn.Parameter]
        self.register_parameter("theta", free if self.untie_cls else None)

    def forward(self, places: Places, cls_first: bool = True) -> Tensor:
        """Logits (1|B, 1|H, T, S); *cls_first* is False if a row may begin with padding."""
        if not self.untie_cls:
            return self._sum(places)
        if places.by_index and cls_first and places.keys.size(1) > 1:
            return self._beside_cls(places)
        total = self._sum(places)
        from_cls, to_cls = self._theta().to(total.dtype).view(2, 1, -1, 1, 1)
        total = torch.where((places.keys == 0)[:, None, None, :], to_cls, total)
        return torch.where((places.queries == 0)[:, None, :, None], from_cls, total)

    def by_distance(self, distances: Tensor) -> Tensor:
        """Logits (H, N), float32, of *distances* (N); requires :attr:`distance_alone`."""
        terms: Any = self.values()
        return torch.stack([term.logits_by_distance(distances).float() for term in terms]).sum(0)

    def without_content(self, positions: Tensor) -> Dict[str, Tensor]:
        """Logits (1, 1|H, T, T), by name, of each term and of the sum, at *positions* (1, T)."""
        places = Places(positions, positions, positions.size(1), by_index=True)
        logits = {name: term(places) for name, term in self.items()}
        if len(logits) > 1 or self.untie_cls:
            untied = ", [CLS] untied" if self.untie_cls else ""
            logits[" + ".join(logits) + untied] = self(places)
        return logits

    def _sum(self, places: Places) -> Tensor:
        logits = [term(places) for term in self.values()]
        return sum(logits[1:], logits[0])

    def _beside_cls(self, places: Places) -> Tensor:
        """Logits (1, H, T, S): the terms for all other tokens, plus a row and a column for [CLS].

        This needs no masks, unlike replacing the logits at position 0.
        """
        queries, keys = places.queries, places.keys
        with_cls = int(queries.size(1) == keys.size(1))
        rest = self._sum(places._replace(queries=queries[:, with_cls:], keys=keys[:, 1:]))
        from_cls, to_cls = self._theta().to(rest.dtype).view(2, 1, -1, 1, 1)
        rest = rest.expand(-1, from_cls.size(1), -1, -1)
        total = torch.cat((to_cls.expand(*rest.shape[:-1], 1), rest), dim=-1)
        row = from_cls.expand(*total.shape[:2], with_cls, total.size(-1))
        return torch.cat((row, total), dim=-2)

    def _theta(self) -> Tensor:
        """θ1 and θ2 of every head, (2, H)."""
        terms: Any = self.values()
        values = [*(term.cls_logits() for term in terms), self.theta]
        return torch.stack([value for value in values if value is not None]).sum(dim=0)


class PositionEncoding:
    """A composition of encodings, with at most one input table and one transform.

    It is not a module: the stack owns the modules in :attr:`modules`, and each attention layer owns
    the result of :meth:`build_content_bias`.

    *index* numbers the compositions of a stack, from 0.
    """

    def __init__(
        self, encodings: List[Encoding], options: Options, stack: Stack, index: int = 0
    ) -> None:
        self.name = "+".join(e.name for e in encodings)
        self.options, self.stack, self.index = options, stack, index
        self.content = {e.name: e.content for e in encodings if e.content}
        self.input = next((e.input for e in encodings if e.input), None)
        transforms = [(e.name, e.transform(options, stack)) for e in encodings if e.transform]
        self.transform: Optional[QKVTransform]
        self.transformed_by, self.transform = transforms[0] if transforms else ("", None)
        shared = {e.name: e.shared(options, stack) for e in encodings if e.shared}
        self.shared_bias = SharedBiasSum(shared, options, stack) if shared else None
        vectors = {e.name: e.distances(options, stack) for e in encodings if e.distances}
        self.vectors = nn.ModuleDict(vectors) if vectors else None
        #: the content-dependent terms, by index of the layer
        self.layer_terms: Dict[int, ContentBiasSum] = {}
        self.relative = is_relative(encodings, options, stack)
        self.bounded = any(e.bounded for e in encodings)
        self.scale = stack.head_dim**-0.5
        for encoding in encodings:
            self.scale *= encoding.logit_scale

    @property
    def modules(self) -> Dict[str, Optional[nn.Module]]:
        """The modules that the stack owns, by name in the stack and in checkpoints."""
        suffix = f"_{self.index}" if self.index else ""
        return {
            f"position_bias{suffix}": self.shared_bias,
            f"position_map{suffix}": self.transform,
            f"position_vectors{suffix}": self.vectors,
        }

    def build_content_bias(self) -> Optional[ContentBiasSum]:
        """New content-dependent terms, to be owned by one layer, or None if there are none."""
        terms = {name: of(self.options, self.stack) for name, of in self.content.items()}
        return ContentBiasSum(terms, list(self.vectors or ())) if terms else None

    def parameters(self) -> Iterator[nn.Parameter]:
        """The parameters of :attr:`modules`, and of the content-dependent terms in the layers."""
        for module in (*self.modules.values(), *self.layer_terms.values()):
            yield from () if module is None else module.parameters()

    def rotation(self, layer: int) -> Optional[Rotation]:
        """The rotation of queries and keys in *layer*, or None."""
        return None if self.transform is None else self.transform.rotation(layer)

    def by_distance(self, distances: Tensor) -> Optional[Tensor]:
        """Content-free logits (H, N), float32, of *distances* (N), key minus query, in tokens.

        None if there are none, or if they depend on more than the distance.
        """
        if self.shared_bias is None or not self.shared_bias.distance_alone:
            return None
        return self.shared_bias.by_distance(distances)

    def constant_from(self, longest: int) -> int:
        """The distance from which on content-free logits are constant; *longest* if they vary."""
        terms: Any = self.shared_bias or {}
        return max((term.constant_from or longest for term in terms.values()), default=0)

    def tables(self, layer: int) -> Dict[str, Tensor]:
        """The distance vectors of *layer*; see :meth:`.ContentBias.tables`."""
        terms: Any = self.layer_terms.get(layer, {})
        return {name: table for term in terms.values() for name, table in term.tables().items()}

    def without_content(self, positions: Tensor) -> Dict[str, Tensor]:
        """Content-free logits, equal in all layers, by encoding: (1, 1|H, T, T) at *positions*."""
        logits = {} if self.shared_bias is None else self.shared_bias.without_content(positions)
        products = None if self.transform is None else self.transform.without_content(positions)
        if products is not None:
            logits = {**logits, self.transformed_by: self.scale * products}
        return logits

    def distance_vectors(self, places: Places, like: Tensor) -> Optional[Tensor]:
        """Vectors of all distances between positions in *places*, in the dtype of *like*.

        Returns:
            (N, L, H·D) for N encodings with such vectors and L distances from -n to n, where no
            distance exceeds n; None if no encoding has such vectors.
        """
        if self.vectors is None:
            return None
        reach = places.keys.size(1) if places.by_index else places.bound
        distances = all_distances(places.queries.size(1), reach, like.device)
        return torch.stack([module(distances).type_as(like) for module in self.vectors.values()])


def is_relative(encodings: List[Encoding], options: Options, stack: Stack) -> bool:
    """Whether a composition is invariant to shifting all positions by the same amount."""
    transforms = [e.transform for e in encodings if e.transform]
    rotates = not transforms or stack.relative_after_rotation
    values = any(transform.changes_values(options) for transform in transforms)
    free = rotates and not values and not options.untie_cls
    return free and all(encoding.is_relative(options) for encoding in encodings)


def check_encodings(options: Options, stack: Stack, pattern: Pattern) -> None:
    """Refuse a *pattern* of ``--position-encoding`` that a stack cannot have; nothing is built."""
    for name, encodings in pattern.compositions.items():
        for hook in ("input", "transform"):
            users = [e.name for e in encodings if getattr(e, hook) is not None]
            if len(users) > 1:
                raise UsageError(
                    f"--position-encoding {name}: {' and '.join(users)} both use the {hook} hook; "
                    "keep only one"
                )
        for encoding in encodings:
            if encoding.causal_only and not stack.causal:
                raise UsageError(
                    f"--position-encoding {name}: {encoding.name} needs a causal stack, because "
                    f"{encoding.causal_only}, and this {stack.side} sees later keys; give "
                    f"another encoding (in translation, with --{stack.side}-position-encoding)"
                )
            encoding.acts.check(options, stack)
            if encoding.distances is not None:
                encoding.distances.check(options, stack)
    if not options.untie_cls:
        return
    if not any(e.shared for e in pattern.encodings):
        raise UsageError(
            f"--untie-cls: --position-encoding {pattern.value} has no content-free logits to "
            "reset; drop the flag, or add an encoding that has some, such as tupe, t5 or alibi"
        )
    if not stack.has_cls:
        raise UsageError(
            f"--untie-cls: the input of this {stack.side} does not start with a [CLS] token; drop "
            "the flag, or use a masked language model (with --init-token 0 where the task has that "
            "flag)"
        )


def build_encodings(options: Options, stack: Stack, value: str) -> Dict[str, PositionEncoding]:
    """The distinct compositions in a *value* of ``--position-encoding``, by name."""
    return {
        name: PositionEncoding(encodings, options, stack, index)
        for index, (name, encodings) in enumerate(parse(value).compositions.items())
    }
