"""Comparing a model with its export to CTranslate2."""

from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np
import torch
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_lines, say_on_terminal
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.checkpoints.loader import Loaded
from fairseq_posenc.exchange.verify import largest, refuse_difference
from fairseq_posenc.models.kinds import CAUSAL, MASKED, TRANSLATION, Kind
from fairseq_posenc.serving.translate import Beam
from fairseq_posenc.serving.translation import FairseqEngine

#: Lengths of the compared sentences, in tokens, where the model accepts them.
LENGTHS = (1, 3, 20, 50, 140)
#: Beam size, length penalty and longest translation of the compared translations.
BEAM, PENALTY, MAX_LENGTH = 4, 0.6, 200


def _sentences(dictionary: Dictionary, longest: int, seed: int) -> List[List[int]]:
    """Sentences of ordinary symbols, always the same."""
    generator = torch.Generator().manual_seed(seed)
    lengths = sorted({min(length, longest - 2) for length in LENGTHS})  # room for </s> and <s>
    highest = len(dictionary)
    return [
        torch.randint(dictionary.nspecial, highest, (length,), generator=generator).tolist()
        for length in lengths
        if length > 0 and highest > dictionary.nspecial
    ]


def _words(dictionary: Dictionary, numbers: List[int]) -> List[str]:
    return [dictionary[number] for number in numbers]


def _log_probabilities(logits: Tensor, targets: List[int]) -> Tensor:
    """The log-probabilities of *targets* (T), given logits (1, T, V)."""
    return torch.log_softmax(logits[0].float(), -1)[range(len(targets)), targets]


def _translation(loaded: Loaded, engine: Any, src: List[int], tgt: List[int]) -> Tuple[Tensor, Any]:
    source, target = loaded.task.source_dictionary, loaded.task.target_dictionary
    tokens, previous = torch.tensor([[*src, source.eos()]]), torch.tensor([[target.eos(), *tgt]])
    logits, _ = loaded.model(tokens, torch.tensor([tokens.size(1)]), previous)
    theirs = engine.score_batch([_words(source, src)], [_words(target, tgt)])[0].log_probs
    return _log_probabilities(logits, [*tgt, target.eos()]), theirs


def _language_model(loaded: Loaded, engine: Any, sentence: List[int]) -> Tuple[Tensor, Any]:
    dictionary = loaded.task.source_dictionary
    tokens = [dictionary.eos(), *sentence]
    logits, _ = loaded.model(torch.tensor([tokens[:-1]]))
    theirs = engine.score_batch([_words(dictionary, tokens)])[0].log_probs
    return _log_probabilities(logits, sentence), theirs


def _encoder(loaded: Loaded, engine: Any, sentence: List[int]) -> Tuple[Tensor, Any]:
    dictionary = loaded.task.source_dictionary
    tokens = [dictionary.bos(), *sentence, dictionary.eos()]
    states, _ = loaded.model(torch.tensor([tokens]), features_only=True)
    return states, np.array(engine.forward_batch([tokens]).last_hidden_state)


#: By the kind of model, the engine's class and what gives both outputs for sentences of each side.
_ENGINES: Dict[str, Tuple[str, Callable[..., Tuple[Tensor, Any]]]] = {
    TRANSLATION.name: ("Translator", _translation),
    CAUSAL.name: ("Generator", _language_model),
    MASKED.name: ("Encoder", _encoder),
}


def compare_engine(
    kind: Kind, loaded: Loaded, folder: str, limits: Dict[str, int], quantization: Optional[str]
) -> float:
    """The largest difference of an exported model from fairseq's.

    Args:
        limits: length up to which each side is exact.
        quantization: type of the exported weights; only float32 has to agree.

    Returns:
        the largest absolute difference of token log-probabilities, or of an encoder's states.

    Raises:
        UsageError: the difference of a float32 export is above 1e-4, or NaN.
    """
    say_on_terminal("comparing the two models")
    name, both = _ENGINES[kind.name]
    engine = getattr(import_extra("ctranslate2", "--verify"), name)(folder, compute_type="default")
    sides = [
        _sentences(getattr(loaded.task, f"{side}_dictionary"), longest, seed)
        for seed, (side, longest) in enumerate(limits.items(), 1)
    ]
    outputs = [both(loaded, engine, *sentences) for sentences in zip(*sides)]
    difference = max(largest(ours, torch.as_tensor(theirs)) for ours, theirs in outputs)
    if quantization in (None, "float32"):
        refuse_difference(difference, loaded.path, "fairseq")
    return difference


def same_translations(kind: Kind, loaded: Loaded, folder: str, path: str) -> Tuple[int, int]:
    """The number of identical beam translations, and of all.

    Args:
        path: text in subwords, a sentence a line.

    Raises:
        UsageError: it is no translation model, or the text cannot be read.
    """
    if kind is not TRANSLATION:
        raise UsageError(f"--verify-file {path}: is for translation models; this is no such model")
    lines = [line.split() for line in read_lines(path, f"--verify-file {path}") if line.strip()]
    say_on_terminal(f"translating {path} with both models")
    engine = import_extra("ctranslate2", "--verify-file").Translator(folder)
    results = engine.translate_batch(
        lines,
        beam_size=BEAM,
        length_penalty=PENALTY,
        max_decoding_length=MAX_LENGTH,
        max_batch_size=2000,
        batch_type="tokens",
    )
    theirs = [result.hypotheses[0] for result in results]
    beam = Beam(BEAM, PENALTY, 1, MAX_LENGTH, 2000)
    found = FairseqEngine(loaded).translate(lines, [[]] * len(lines), beam)
    ours = [hypotheses[0].tokens for hypotheses in found]
    return sum(a == b for a, b in zip(ours, theirs)), len(lines)
