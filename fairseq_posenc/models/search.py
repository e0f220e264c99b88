"""What fairseq's search tells the models: how many hypotheses a sentence has."""

from typing import Any, Callable, Dict, Sequence

from fairseq.sequence_generator import EnsembleModel, SequenceGenerator
from torch import Tensor

from fairseq_posenc.attention.cache import BEAM


def counting_hypotheses(generate: Callable[..., Any]) -> Callable[..., Any]:
    """Note the number of hypotheses of each sentence for as long as a generation takes."""

    def wrapper(generator: SequenceGenerator, *args: object, **kwargs: object) -> Any:
        ensemble: Any = generator.model
        ensemble.beam = generator.beam_size
        try:
            return generate(generator, *args, **kwargs)
        finally:
            ensemble.beam = 1

    return wrapper


def telling_hypotheses(forward_decoder: Callable[..., Any]) -> Callable[..., Any]:
    """Put that number into the cache, so that a sentence's hypotheses share the keys of its source.

    fairseq would put it into the modules of models that have ``set_beam_size``, and leave it there.
    """

    def wrapper(
        ensemble: EnsembleModel,
        tokens: Tensor,
        encoder_outs: Any,
        incremental_states: Sequence[Dict[str, Any]],
        *args: object,
        **kwargs: object,
    ) -> Any:
        for state in incremental_states:
            state[BEAM] = getattr(ensemble, "beam", 1)
        return forward_decoder(ensemble, tokens, encoder_outs, incremental_states, *args, **kwargs)

    return wrapper
