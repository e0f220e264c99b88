"""The interface of what translates tokens."""

from typing import Any, Dict, List, NamedTuple, Protocol

Tokens = List[str]

#: The longest translation in tokens unless a user says otherwise: fairseq-generate's --max-len-b.
#: The limit is the same for every sentence, so that no translation depends on its neighbours.
MAX_LENGTH = 200


class Hypothesis(NamedTuple):
    """A translation.

    Args:
        tokens: without the end of the sentence.
        score: sum of the log-probabilities, divided by length to the power of the penalty.
    """

    tokens: Tokens
    score: float


class Beam(NamedTuple):
    """A beam search.

    Args:
        size: number of hypotheses.
        penalty: exponent of the length by which scores are divided.
        n_best: number of translations to return.
        max_length: longest translation, in tokens without the end of the sentence.
        batch: tokens translated at once.
    """

    size: int
    penalty: float
    n_best: int
    max_length: int
    batch: int


class Hardware(NamedTuple):
    """The device and the numbers with which an engine computes.

    Args:
        device: cpu or cuda.
        threads: 0 for the engine's default.
        compute_type: the type in which CTranslate2 computes; default: as exported.
    """

    device: str = "cpu"
    threads: int = 0
    compute_type: str = "default"


class Engine(Protocol):
    """Translates tokens."""

    #: longest source and longest target, in tokens with </s>
    longest: Dict[str, int]

    def translate(self, sources: List[Tokens], prefixes: List[Tokens], beam: Beam) -> Any:
        """The n best translations of each source, best first.

        Args:
            sources: none is empty, or longer than the model accepts.
            prefixes: what each translation starts with; may be empty.
            beam: the search.
        """
