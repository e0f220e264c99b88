"""Decoding steps that are not computed by calling the layers one after the other."""

from typing import Any, Callable, Dict, List, Optional, Tuple

from torch import Tensor, nn

from fairseq_posenc.attention import Padding
from fairseq_posenc.flags.options import Layer, Options
from fairseq_posenc.stacks.assigned import Assigned

CacheState = Dict[str, Any]
#: The layer whose attention to the source is returned, or None; the number of heads to average.
Weights = Tuple[Optional[int], Optional[int]]


class Steps(nn.Module):
    """Computes the steps of a decoder.

    It is a module of the decoder, so ``train``, ``half`` and the like reach it.  It reorders its
    cache by ``reorder_incremental_state(incremental_state, new_order)``, as fairseq's modules do.
    """

    def cached_length(self, state: CacheState) -> Optional[int]:
        """Number of tokens in the cache, or None if the layers hold it."""
        raise NotImplementedError

    def step(
        self,
        decoder: Layer,
        tokens: Tensor,
        seen: int,
        padding: Padding,
        assigned: Optional[Assigned],
        encoder_out: Any,
        state: CacheState,
        weights: Weights,
    ) -> Optional[Tuple[Tensor, Optional[Tensor]]]:
        """Compute a step, or return None to leave it to the layers.

        *tokens* (B, S) are all so far, *seen* in the cache; *weights* are as for ``apply_layers``.

        Returns:
            states (B, 1, C) and weights (B, 1, S') or None.
        """
        raise NotImplementedError


#: Functions of a configuration and a decoder that return :class:`Steps`, or None without the flag.
STEPS: List[Callable[[Options, Layer], Optional[Steps]]] = []


def steps_of(cfg: Options, decoder: Layer) -> Optional[Steps]:
    """The :class:`Steps` of a decoder that was just built, or None."""
    candidates = (make(cfg, decoder) for make in STEPS)
    return next((steps for steps in candidates if steps is not None), None)
