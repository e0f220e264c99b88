"""The encodings of a stack's layers, and what these layers get from them in a forward pass."""

import math
from typing import Any, Dict, Hashable, List, Optional

from fairseq.data import Dictionary
from torch import Tensor

from fairseq_posenc.attention import AttentionKernel, Batch, kernel_of
from fairseq_posenc.attention.batch import Padding, count_positions
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.configuration.stacks import side_encoding
from fairseq_posenc.encodings import PositionEncoding, Stack, build_encodings, parse_pattern
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.stacks.explicit import Explicit, ExplicitPositions

#: What layers get by name, by the kind of their attention.
Prepared = Dict[Hashable, Dict[str, Any]]


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
        self.kernel = kernel_of(cfg)
        transforms = [e.transform for e in self.encodings.values() if e.transform is not None]
        #: the most positions that all transforms take without a warning
        self.reach = min((transform.reach for transform in transforms), default=math.inf)
        self.causal = stack.causal
        explicit = ExplicitPositions(cfg, stack, dictionary)
        #: makes positions that are not counted, if there can be any
        self.explicit = explicit if explicit.sampler or explicit.rule else None
        #: one kernel of each kind; they are modules of their layers
        self.kinds: Dict[Hashable, AttentionKernel] = {}

    def number(self, layers: List[List[AttentionKernel]]) -> None:
        """Tell the kernels the index of their layer, and find those that share what they prepare.

        Args:
            layers: the self-attentions of each layer of the stack, in order; a layer of gated
                units can have two.
        """
        for place, kernels in enumerate(layers):
            index = self.kept[place] if len(layers) == len(self.kept) else place
            for kernel in kernels:
                kernel.place(index, layers[0][0])
                self.kinds[kernel.kind] = kernel

    def check_length(self, length: int) -> None:
        """Refuse sequences that are longer than a table of positions.

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

    def _say_how_far(self, bound: int) -> None:
        """Warn where a transform gets positions beyond those of training, up to *bound* - 1."""
        for encoding in self.encodings.values():
            if encoding.transform is not None and bound > encoding.transform.reach:
                encoding.transform.exceeded(bound)

    def refuse_cache(self) -> None:
        """Refuse a cache where a longer text would change the positions of its keys."""
        if self.explicit is not None and self.explicit.spreads:
            raise UsageError(
                "--evaluation-positions spread: positions depend on the length of the whole text, "
                "so nothing can be generated with a cache; for generation give --model-overrides "
                "\"{'evaluation_positions': 'counted'}\""
            )

    def given(
        self, padding: Padding, tokens: Tensor, training: bool, remembered: int = 0
    ) -> Optional[Explicit]:
        """The positions of a batch, or None if they are counted.

        Args:
            padding: the padding of *tokens*.
            tokens: (B, S).
            training: whether ``--random-positions`` has an effect.
            remembered: number of tokens before them in a memory, which get positions, too.
        """
        if self.explicit is None:
            return None
        length = remembered + tokens.size(1)
        counted = count_positions(remembered > 0, length, padding, tokens.device)
        explicit = self.explicit.of_batch(tokens, counted, training)
        if explicit is not None and self.explicit.rule is not None:
            places = explicit.places
            self._say_how_far(length if places is None else places.bound)
        return explicit

    def prepare(self, batch: Batch) -> Prepared:
        """What the self-attentions get, by their kind."""
        return {kind: kernel.prepare(batch) for kind, kernel in self.kinds.items()}


def prepared_for(layer: Any, prepared: Prepared) -> Dict[str, Any]:
    """What *layer* gets; nothing for fairseq's ``BaseLayer``, which has no encoding."""
    return prepared[layer.self_attn.kind] if hasattr(layer, "encoding") else {}
