"""Comparing the outputs of a model before and after its conversion, in every format."""

from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy as np
import torch
from fairseq.data import Dictionary
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_lines
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.basics.progress import say_on_terminal
from fairseq_posenc.checkpoints.loader import Loaded
from fairseq_posenc.checkpoints.settings import architecture
from fairseq_posenc.exchange.formats import ForeignModel, Logits
from fairseq_posenc.flags.options import option
from fairseq_posenc.models.kinds import CAUSAL, MASKED, PAD, TRANSLATION, Kind, kind_of
from fairseq_posenc.serving.translate import Beam
from fairseq_posenc.serving.translation import FairseqEngine

#: Largest difference of logits that float32 rounding explains.
TOLERANCE = 1e-4


def largest(ours: Tensor, theirs: Tensor, real: Optional[Tensor] = None) -> float:
    """The largest absolute difference of two outputs.

    Args:
        ours: one output.
        theirs: the other, of the same shape.
        real: True for the tokens (B, T) to compare, where the outputs are by token.
    """
    difference = (ours.double() - theirs.double()).abs()
    return float((difference if real is None else difference[real]).max())


def computed(
    logits: Logits, tokens: Tensor, other: Tensor, source: str, description: str
) -> Tensor:
    """The logits of a reference, which may fail on settings that it loads.

    Args:
        logits: computes them.
        tokens: its first input.
        other: its second input.
        source: what is converted, for messages.
        description: the reference, for messages.

    Raises:
        UsageError: it fails.
    """
    try:
        return logits(tokens, other)
    except UsageError:
        raise
    except Exception as error:  # versions of transformers differ in what they raise
        raise UsageError(
            f"{source}: {description} cannot compute it ({error}); nothing was written"
        ) from error


def refuse_difference(difference: float, source: str, description: str) -> None:
    """Refuse a conversion that changed the outputs.

    Raises:
        UsageError: *difference* is above :data:`TOLERANCE` or NaN.
    """
    if not difference <= TOLERANCE:
        raise UsageError(
            f"{source}: the largest difference from {description} is {difference:.3g}, above "
            f"{TOLERANCE:g}; nothing was written"
        )


def sample(vocabulary: int, longest: int, num_segments: int) -> Tuple[Tensor, Tensor]:
    """Tokens and segments for the comparison: always the same, one full row and two padded.

    Args:
        vocabulary: V.
        longest: the maximum length of the model.
        num_segments: number of segments, 0 for none.

    Returns:
        tokens (3, T), starting with <s>, and segments (3, T).
    """
    generator = torch.Generator().manual_seed(1)
    length = min(longest, 140)  # long enough for every T5 bucket
    tokens = torch.randint(2, vocabulary, (3, length), generator=generator)
    segments = torch.randint(0, max(num_segments, 1), (3, length), generator=generator)
    tokens[:, 0] = 0
    for row, kept in ((1, max(1, 2 * length // 3)), (2, max(1, length // 3))):
        tokens[row, kept:] = PAD
        segments[row, kept:] = 0
    return tokens, segments


def compare(
    model: nn.Module, kind: Kind, head: Optional[str], foreign: ForeignModel, source: str
) -> float:
    """Compare a converted model with the foreign one.

    Args:
        model: the model, loaded from its file, in evaluation mode.
        kind: what it is; the tokens of a language model are all in the first segment.
        head: name of the head to compare, None for the language-model head.
        foreign: the foreign model.

    Returns:
        the largest absolute difference of logits, padding excluded.

    Raises:
        UsageError: it is above :data:`TOLERANCE` or NaN.
    """
    say_on_terminal("comparing the two models")
    settings: Any = getattr(model, "completed_settings", None) or model.args  # fairseq's own
    num_segments = option(settings, "num_segments", 0) if kind is MASKED else 0
    vocabulary = len(model.get_parameter(kind.embedding))
    tokens, segments = sample(vocabulary, option(settings, kind.length), num_segments)
    differences = []
    for name, logits in ((head, foreign.logits), *foreign.heads.items()):
        with torch.no_grad():
            ours, _ = model(tokens, **_inputs(kind, name, segments if num_segments else None))
        theirs = computed(logits, tokens, segments, source, foreign.description)
        difference = largest(ours, theirs, tokens.ne(PAD) if theirs.dim() == 3 else None)
        if not difference <= TOLERANCE and kind is not MASKED:
            _check_causal(logits, tokens, segments, source, foreign.description)
        of_head = f" in head {name}" if name in foreign.heads else ""
        refuse_difference(difference, source, foreign.description + of_head)
        differences.append(difference)
    return max(differences)


def _check_causal(
    logits: Logits, tokens: Tensor, segments: Tensor, source: str, description: str
) -> None:
    """Refuse a reference in which the last token of a row changes the logits of its first."""
    others = torch.cat((tokens[:1, :-1], tokens[:1, 1:2]), dim=1)
    with torch.no_grad():
        one, other = (logits(x, segments[:1])[0, 0] for x in (tokens[:1], others))
    if not torch.allclose(one, other, equal_nan=True):
        raise UsageError(
            f"{source}: {description} reads later tokens, so there is nothing to compare with (5.9 "
            "to 5.17 do); install transformers 5.18 or newer; nothing was written"
        )


def _inputs(kind: Kind, head: Optional[str], segments: Optional[Tensor]) -> Dict[str, Any]:
    """The inputs of a model besides tokens."""
    if kind is not MASKED:
        return {}
    return {"segment_labels": segments, "classification_head_name": head}


@torch.no_grad()
def refuse_overflow(loaded: Loaded) -> None:
    """Refuse a model that computes infinity or NaN from finite weights, given ordinary tokens."""
    kind = kind_of(architecture(loaded.settings))
    if kind is None:  # a model of another structure
        return
    limits = loaded.model.max_positions()
    longest = min(limits) if isinstance(limits, tuple) else limits
    tokens, _ = sample(len(loaded.task.source_dictionary), longest, 0)
    tokens = tokens[:1]  # without padding
    if kind is TRANSLATION:
        targets, _ = sample(len(loaded.task.target_dictionary), longest, 0)
        outputs = [loaded.model(tokens, torch.tensor([tokens.size(1)]), targets[:1])[0]]
    else:
        heads = [getattr(loaded.model, f"{of}_heads", {}) for of in ("classification", "token")]
        named = [loaded.model(tokens, classification_head_name=n)[0] for of in heads for n in of]
        outputs = [loaded.model(tokens)[0], *named]
    if not all(bool(torch.isfinite(logits).all()) for logits in outputs):
        raise UsageError(
            f"{loaded.path}: its outputs are infinite or not a number, though its weights are "
            "finite; the training diverged, give an earlier checkpoint"
        )


#: Lengths of the compared sentences, in tokens, where the model accepts them.
LENGTHS = (1, 3, 20, 50, 140)
#: Beam size, length penalty and longest translation of the compared translations.
BEAM, PENALTY, MAX_LENGTH = 4, 0.6, 200


def _sentences(dictionary: Dictionary, longest: int, seed: int) -> List[List[int]]:
    """Sentences of ordinary symbols, always the same."""
    generator = torch.Generator().manual_seed(seed)
    lengths = sorted({min(length, longest - 2) for length in LENGTHS})  # </s>, and <s> in some
    highest = len(dictionary)
    return [
        torch.randint(dictionary.nspecial, highest, (length,), generator=generator).tolist()
        for length in lengths
        if length > 0 and highest > dictionary.nspecial
    ]


def _log_probabilities(logits: Tensor, targets: List[int]) -> Tensor:
    """The log-probabilities of *targets* (T), given logits (1, T, V)."""
    return torch.log_softmax(logits[0].float(), -1)[range(len(targets)), targets]


def _translation(loaded: Loaded, folder: str, longest: Dict[str, int]) -> float:
    engine = import_extra("ctranslate2", "--verify").Translator(folder, compute_type="default")
    source, target = loaded.task.source_dictionary, loaded.task.target_dictionary
    differences = []
    pairs = zip(_sentences(source, longest["source"], 1), _sentences(target, longest["target"], 2))
    for src, tgt in pairs:
        tokens = torch.tensor([[*src, source.eos()]])
        previous = torch.tensor([[target.eos(), *tgt]])
        logits, _ = loaded.model(tokens, torch.tensor([tokens.size(1)]), previous)
        ours = _log_probabilities(logits, [*tgt, target.eos()])
        theirs = engine.score_batch([_words(source, src)], [_words(target, tgt)])[0].log_probs
        differences.append(largest(ours, torch.tensor(theirs)))
    return max(differences)


def _language_model(loaded: Loaded, folder: str, longest: Dict[str, int]) -> float:
    engine = import_extra("ctranslate2", "--verify").Generator(folder, compute_type="default")
    dictionary, differences = loaded.task.source_dictionary, []
    for sentence in _sentences(dictionary, longest["target"], 1):
        tokens = [dictionary.eos(), *sentence]
        logits, _ = loaded.model(torch.tensor([tokens[:-1]]))
        theirs = engine.score_batch([_words(dictionary, tokens)])[0].log_probs
        ours = _log_probabilities(logits, sentence)
        differences.append(largest(ours, torch.tensor(theirs)))
    return max(differences)


def _encoder(loaded: Loaded, folder: str, longest: Dict[str, int]) -> float:
    engine = import_extra("ctranslate2", "--verify").Encoder(folder, compute_type="default")
    dictionary, differences = loaded.task.source_dictionary, []
    for sentence in _sentences(dictionary, longest["source"], 1):
        tokens = [dictionary.bos(), *sentence, dictionary.eos()]
        states, _ = loaded.model(torch.tensor([tokens]), features_only=True)
        theirs = np.array(engine.forward_batch([tokens]).last_hidden_state)
        differences.append(largest(states, torch.from_numpy(theirs)))
    return max(differences)


_COMPARE: Dict[str, Callable[[Loaded, str, Dict[str, int]], float]] = {
    TRANSLATION.name: _translation,
    CAUSAL.name: _language_model,
    MASKED.name: _encoder,
}


def _words(dictionary: Dictionary, numbers: List[int]) -> List[str]:
    return [dictionary[number] for number in numbers]


def compare_engine(
    kind: Kind, loaded: Loaded, folder: str, limits: Dict[str, int], quantization: Optional[str]
) -> float:
    """The largest difference of an exported model from fairseq's.

    Args:
        folder: the exported model.
        limits: length up to which each side is exact.
        quantization: type of the exported weights; only float32 has to agree.

    Returns:
        the largest absolute difference of token log-probabilities, or of an encoder's states.

    Raises:
        UsageError: the difference of a float32 export is above 1e-4, or NaN.
    """
    say_on_terminal("comparing the two models")
    difference = _COMPARE[kind.name](loaded, folder, limits)
    if quantization in (None, "float32"):
        refuse_difference(difference, loaded.path, "fairseq")
    return difference


def same_translations(kind: Kind, loaded: Loaded, folder: str, path: str) -> Tuple[int, int]:
    """The number of identical beam translations, and of all.

    Args:
        folder: the exported model.
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
