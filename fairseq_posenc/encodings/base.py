"""Interfaces of position encodings: the five hooks through which an encoding acts on a model.

Letters used for shapes throughout the package: B batch, T query length, S key length, H heads,
D size of one head, C channels.

======================================  ==========================  =======================
hook                                    examples                    computed
======================================  ==========================  =======================
:class:`InputTable`                     sinusoidal, learned         once per forward
:class:`QKVTransform`                   rotary, BERT-A^d            table once per forward,
                                                                    applied in every layer
:class:`SharedBias`                     TUPE, T5 bias, ALiBi        once per forward
:class:`ContentBias`                    Shaw, Transformer-XL,       in every layer
                                        DeBERTa
:class:`DistanceVectors`                Transformer-XL, DeBERTa     once per forward
======================================  ==========================  =======================

Nothing here depends on fairseq: encodings see positions, queries and keys, but no model.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional, Tuple, Type

import torch
from torch import Tensor, nn

from fairseq_posenc.encodings.content import Content as Content
from fairseq_posenc.encodings.content import ContentBias as ContentBias
from fairseq_posenc.encodings.content import DistanceVectors as DistanceVectors
from fairseq_posenc.encodings.distance import toeplitz
from fairseq_posenc.encodings.places import Places as Places
from fairseq_posenc.encodings.stack import Hook
from fairseq_posenc.encodings.stack import Stack as Stack
from fairseq_posenc.encodings.stack import init_normal as init_normal
from fairseq_posenc.flags.options import Options


class InputTable(Hook):
    """Vectors added to the embeddings: one of the two tables of fairseq's ``embed_positions``."""

    hook = "input"
    takes_positions = True
    #: learned, sinusoidal, or None for no vectors at all
    table: Optional[str] = None


class Rotation(NamedTuple):
    """The rotation of queries and keys in one layer (RoFormer Eq. 4), for exports."""

    # angle of each pair of the first d channels of a head, in radians for each position, (d/2,),
    # float64
    frequencies: Tensor
    base: float  # base of the unscaled frequencies, base^(-2(i-1)/d)
    pairing: str  # ``interleaved``, (1, 2), (3, 4), …; or ``half``, (i, i + d/2)
    temperature: float = 1.0  # factor on the rotated channels of queries and of keys


class QKVTransform(Hook, nn.Module):
    """A position-dependent transform of queries, keys and optionally values.

    All layers of a stack share one instance; the stack owns its parameters, if any.
    """

    hook = "transform"
    takes_positions = True
    #: True for a linear map of single vectors, which linear attention can apply to features
    applies_to_features = False
    #: True if the transform differs by head, so that heads cannot share keys
    differs_by_head = False
    #: the number of positions beyond which :meth:`exceeded` is called
    reach: float = math.inf

    @classmethod
    def check_features(cls, options: Options) -> Optional[str]:
        """The flag under which features cannot be transformed, with the reason, or None."""
        return None

    @classmethod
    def changes_values(cls, options: Options) -> Optional[str]:
        """The enabled flag that also transforms the values, or None.

        With transformed values, outputs depend on a shift of all positions.
        """
        return None

    def exceeded(self, length: int) -> None:
        """Warn, if need be, before a forward pass with positions up to *length* - 1."""

    def variant(self, layer: int) -> Any:
        """A key that layers with the same table share; None if all layers do."""
        return None

    def rotation(self, layer: int) -> Optional[Rotation]:
        """The rotation in *layer*, or None if the transform is no rotation."""
        return None

    def without_content(self, positions: Tensor) -> Optional[Tensor]:
        """q·k of transformed zero vectors at *positions* (1|B, T), (1|B, H, T, T); None if zero."""
        return None

    def table(self, positions: Tensor, layer: int = 0) -> Tensor:
        """What :meth:`forward` needs at *positions* (1|B, T) in a layer, once a forward pass.

        Layers of one :meth:`variant` share the table.
        """
        raise NotImplementedError

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, table: Tensor
    ) -> Tuple[Tensor, Tensor, Tensor]:
        """Transformed queries, keys and values (B, T, H, D), with shape and dtype unchanged."""
        raise NotImplementedError

    def rotate(self, x: Tensor, table: Tensor) -> Tensor:
        """Transformed features of queries or keys, (B, T, H, M), for linear attention."""
        return self(x, x, x, table)[0]


class SharedBias(Hook, nn.Module):
    """Content-free logits, shared by all layers of a stack and owned by the stack."""

    hook = "shared"
    takes_positions = True
    #: True if the logits are a function of the distance alone
    distance_alone = False

    def forward(self, places: Places) -> Tensor:
        """Logits (1|B, 1|H, T, S) of queries and keys at *places*, added to q·k unscaled."""
        raise NotImplementedError

    def cls_logits(self) -> Optional[Tensor]:
        """θ1 and θ2 of TUPE Eq. 9, (2, H), if the encoding computes them, else None."""
        return None


class DistanceBias(SharedBias):
    """Content-free logits that are a function of the distance alone."""

    distance_alone = True
    #: the distance, if any, from which on all distances of one sign share a logit
    constant_from: Optional[int] = None

    def __init__(self, options: Options, stack: Stack) -> None:
        super().__init__(options, stack)
        self.num_heads = stack.num_heads

    def by_distance(self, distances: Tensor) -> Tensor:
        """Logits (H, N) of *distances* (N), int64, key minus query, in tokens."""
        raise NotImplementedError

    def logits_by_distance(self, distances: Tensor) -> Tensor:
        """Call :meth:`by_distance`, and check the shape of its result."""
        logits = self.by_distance(distances)
        self.check_shape("by_distance", logits, "(H, N)", self.num_heads, distances.size(0))
        return logits

    def forward(self, places: Places) -> Tensor:
        """Logits (1|B, H, T, S).

        If distances are differences of indices, all sequences share them, whatever their padding,
        and logits are computed for the S + T - 1 distances of a sequence.  Else they are computed
        for each pair, or for each distance below the bound if there are fewer.
        """
        distances = places.distances
        if distances is None:
            queries, keys = places.queries.size(1), places.keys.size(1)
            distances = torch.arange(1 - keys, queries, device=places.keys.device)
            return toeplitz(self.logits_by_distance(distances), keys).unsqueeze(0)
        if distances.numel() < 2 * places.bound:
            logits = self.logits_by_distance(distances.flatten()).contiguous()
        else:
            last = places.bound - 1
            every = torch.arange(-last, places.bound, device=distances.device)
            rows = (distances + last).clamp(0, 2 * last)
            logits = self.logits_by_distance(every).index_select(1, rows.flatten())
        return logits.view(-1, *distances.shape).transpose(0, 1)  # (H, B, T, S) -> (B, H, T, S)


@dataclass(frozen=True)
class Encoding:
    """Registry entry of a position encoding."""

    name: str  # its value of ``--position-encoding``
    paper: str  # authors, year and arXiv number or venue, for ``fairseq-posenc list``
    summary: str  # one clause for the same table
    acts: Type[Hook]  # the class of the hook through which it acts
    flags: Optional[type] = None  # dataclass of its flags, if any
    # class of the vectors that its content-dependent terms project, if any
    distances: Optional[Type[DistanceVectors]] = None
    # factor on 1/sqrt(D), if added terms would raise the variance of logits
    logit_scale: float = 1.0
    # True if invariant to shifting all positions by the same amount, unless its flags say otherwise
    relative: bool = True
    bounded: bool = False  # True if it has a table of positions, which limits the length
    causal_only: Optional[str] = None  # why it needs a causal stack, or None if it does not

    @property
    def takes_positions(self) -> bool:
        """True if it accepts positions other than 0, 1, 2, …."""
        return self.acts.takes_positions

    def is_relative(self, options: Options) -> bool:
        """Whether shifting all positions changes nothing, with the flags of a model."""
        return self.relative and self.acts.shifts_freely(options)

    def _at(self, hook: str) -> Any:
        """The class through which the encoding acts, if its hook is *hook*, or None."""
        return self.acts if self.acts.hook == hook else None

    @property
    def input(self) -> Optional[str]:
        """Name of the fairseq table that is added to the embeddings, or None."""
        return getattr(self._at("input"), "table", None)

    @property
    def transform(self) -> Optional[Type[QKVTransform]]:
        """Class that transforms queries and keys, or None."""
        return self._at("transform")

    @property
    def shared(self) -> Optional[Type[SharedBias]]:
        """Class of content-free logits, or None."""
        return self._at("shared")

    @property
    def content(self) -> Optional[Type[ContentBias]]:
        """Class of content-dependent terms, or None."""
        return self._at("content")
