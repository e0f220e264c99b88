"""Export of translation models, language models and encoders to folders for CTranslate2.

The models can be from this plug-in or from fairseq.  A model is built and loaded as in fairseq's
commands.  Its parameters are then copied into a specification of the engine's Python package.
"""

import os
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import numpy as np
import torch
from fairseq.data import Dictionary
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import files_in, new_folder, refuse_existing
from fairseq_posenc.basics.lines import json_text, read_lines, say_on_terminal
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.checkpoints.loader import Loaded
from fairseq_posenc.checkpoints.settings import task_settings
from fairseq_posenc.exchange import formats
from fairseq_posenc.exchange.ctranslate2.positions import ENGINE, refuse_settings
from fairseq_posenc.exchange.ctranslate2.stacks import Parameters, decoder_spec, encoder_spec
from fairseq_posenc.exchange.formats import Report, Wanted
from fairseq_posenc.exchange.native import (
    DATA,
    LANGUAGES,
    MODEL_OVERRIDES,
    NativeCheckpoint,
    read_source,
)
from fairseq_posenc.exchange.verify import largest, refuse_difference
from fairseq_posenc.models.kinds import CAUSAL, COPIES, HEADS, MASKED, TRANSLATION, Kind
from fairseq_posenc.serving.model_folder import EXPORT_SETTINGS
from fairseq_posenc.serving.translate import Beam
from fairseq_posenc.serving.translation import FairseqEngine
from fairseq_posenc.version import __version__

NAME = "ctranslate2"
QUANTIZATION = formats.Flag(
    "quantization",
    "type of the weights: int8, int8_float16, float16, bfloat16, ... (default: float32)",
    "TYPE",
)
VERIFY_FILE = formats.Flag(
    "verify_file", "source sentences in subwords; both models' translations are compared", "FILE"
)
#: Lengths of the compared sentences, in tokens; a length is reduced if the model's limit is lower.
LENGTHS = (1, 3, 20, 50, 140)
#: The search settings for the translations that are compared.
BEAM = Beam(4, 0.6, 1, 200, 2000)


class CTranslate2Exporter(formats.Exporter):
    """Writes a folder that CTranslate2 loads."""

    flags = (DATA, *LANGUAGES, QUANTIZATION, VERIFY_FILE, MODEL_OVERRIDES)

    def export(self, wanted: Wanted) -> Report:
        """See :class:`~fairseq_posenc.exchange.formats.Exporter`.

        The compared outputs are log-probabilities, or the states of an encoder.  Only an export in
        float32 is refused if the engine's outputs differ from the model's.
        """
        import_extra("ctranslate2", f"export {NAME}")
        from ctranslate2.specs.model_spec import ACCEPTED_MODEL_TYPES

        quantization = wanted.get("quantization")
        if quantization is not None and quantization not in ACCEPTED_MODEL_TYPES:
            known = " or ".join(ACCEPTED_MODEL_TYPES)
            raise UsageError(f"--quantization {quantization}: must be {known}")
        refuse_existing(wanted.out)
        found = read_expressible(wanted)
        report = write(found.loaded, found.kind, wanted)
        return report._replace(notes=[*report.notes, *found.notes])


def read_expressible(wanted: Wanted) -> NativeCheckpoint:
    """Load the checkpoint at the path of *wanted*; refuse a model that CTranslate2 cannot run."""
    found = read_source(wanted, ENGINE)
    refuse_settings(found.path, found.kind, found.settings)
    return found


@torch.no_grad()
def fill(loaded: Loaded, kind: Kind) -> Tuple[Any, Dict[str, Dict[str, Any]]]:
    """Fill a specification with a loaded model, whose settings :func:`refuse_settings` accepts.

    Returns:
        the specification, and two limits in tokens for each side: ``longest``, the longest input,
        and ``exact_below``, the length from which on positions are approximate, or None.
    """
    from ctranslate2.specs import transformer_spec

    task, activation, parameters = loaded.task, loaded.settings["activation_fn"], Parameters()
    name, paths = _ENGINES[kind.name][:2]
    stacks = {side: loaded.model.get_submodule(path) for side, path in paths.items()}
    filled = {
        side: (encoder_spec if side == "source" else decoder_spec)(stack, activation, parameters)
        for side, stack in stacks.items()
    }
    spec = getattr(transformer_spec, name)(*(each for each, _ in filled.values()))
    if kind is TRANSLATION:
        spec.register_source_vocabulary(_symbols(task.source_dictionary))
        spec.register_target_vocabulary(_symbols(task.target_dictionary))
        spec.config.decoder_start_token = spec.config.eos_token
        spec.config.add_source_eos = True
    else:
        spec.register_vocabulary(_symbols(task.source_dictionary))
    if kind is CAUSAL and not getattr(task_settings(task), "add_bos_token", False):
        spec.config.bos_token = spec.config.eos_token  # a text begins with </s>
    heads = HEADS if kind is MASKED else ()
    for left in parameters.left(loaded.model):
        if not left.startswith(heads) and not COPIES.search(left):
            raise UsageError(
                f"{loaded.path}: its parameter {left} has no counterpart in CTranslate2; nothing "
                "was written"
            )
    if len(parameters.epsilons) > 1:
        shown = " and ".join(f"{value:g}" for value in sorted(parameters.epsilons))
        raise UsageError(f"{loaded.path}: its norms have ε {shown}; CTranslate2 has one ε for all")
    spec.config.layer_norm_epsilon = parameters.epsilons.pop()
    longest = {side: stack.max_positions() for side, stack in stacks.items()}
    exact = {side: limit for side, (_, limit) in filled.items()}
    return spec, {"longest": longest, "exact_below": exact}


@torch.no_grad()
def write(loaded: Loaded, kind: Kind, wanted: Wanted) -> Report:
    """Write and compare a loaded model, whose settings :func:`refuse_settings` accepts.

    The report has the largest difference of token log-probabilities, or of an encoder's states.
    """
    spec, limits = fill(loaded, kind)
    difference = same = None
    quantization, text = wanted.get("quantization") or "float32", wanted.get("verify_file")
    versions = {"quantization": quantization, "fairseq_posenc": __version__}
    told = {"kind": kind.name, **limits, **versions}  # what serving reads before it translates
    with new_folder(wanted.out) as side:
        spec.validate()
        spec.optimize(quantization=wanted.get("quantization"))
        spec.save(side)
        Path(side, EXPORT_SETTINGS).write_text(json_text(told), "utf-8")
        if wanted.verify:
            difference = _difference(kind, loaded, side, limits)
            if quantization == "float32":
                refuse_difference(difference, loaded.path, "fairseq")
        if text is not None:
            same = _same_translations(kind, loaded, side, text)
        files = [os.path.join(wanted.out, name) for name in files_in(side)]
    notes = [
        f"the {side} is computed exactly below {limit} tokens, and approximately from there on"
        for side, limit in limits["exact_below"].items()
        if limit is not None
    ]
    if kind is MASKED and any(n.startswith(HEADS) for n, _ in loaded.model.named_parameters()):
        notes.append("the states of the encoder are exported, without its output layers")
    if loaded.settings.get("segments") == "pairs":
        notes.append("pass the segments of text pairs as token types")
    return Report(files, notes, difference, "fairseq", same, quantization)


def _symbols(dictionary: Dictionary) -> List[str]:
    """The symbols of a dictionary, in order, with the engine's name for padding."""
    return ["<blank>" if symbol == dictionary.pad_word else symbol for symbol in dictionary.symbols]


def _sentences(dictionary: Dictionary, longest: int, seed: int) -> List[List[int]]:
    """Fixed random sentences of ordinary symbols."""
    generator = torch.Generator().manual_seed(seed)
    lengths = sorted({min(length, longest - 2) for length in LENGTHS})  # room for </s> and <s>
    first, highest = dictionary.nspecial, len(dictionary)
    return [
        torch.randint(first, highest, (length,), generator=generator).tolist()
        for length in lengths
        if length > 0 and highest > first
    ]


def _log_probabilities(logits: Tensor, targets: List[int]) -> Tensor:
    """The log-probabilities of *targets* (T), given logits (1, T, V)."""
    return torch.log_softmax(logits[0].float(), -1)[range(len(targets)), targets]


def _translation(loaded: Loaded, engine: Any, src: List[int], tgt: List[int]) -> Tuple[Tensor, Any]:
    source, target = loaded.task.source_dictionary, loaded.task.target_dictionary
    tokens, previous = torch.tensor([[*src, source.eos()]]), torch.tensor([[target.eos(), *tgt]])
    logits, _ = loaded.model(tokens, torch.tensor([tokens.size(1)]), previous)
    words = [source[n] for n in src], [target[n] for n in tgt]
    theirs = engine.score_batch(*([each] for each in words))[0].log_probs
    return _log_probabilities(logits, [*tgt, target.eos()]), theirs


def _language_model(loaded: Loaded, engine: Any, sentence: List[int]) -> Tuple[Tensor, Any]:
    dictionary = loaded.task.source_dictionary
    tokens = [dictionary.eos(), *sentence]
    logits, _ = loaded.model(torch.tensor([tokens[:-1]]))
    theirs = engine.score_batch([[dictionary[n] for n in tokens]])[0].log_probs
    return _log_probabilities(logits, sentence), theirs


def _encoder(loaded: Loaded, engine: Any, sentence: List[int]) -> Tuple[Tensor, Any]:
    dictionary = loaded.task.source_dictionary
    tokens = [dictionary.bos(), *sentence, dictionary.eos()]
    states, _ = loaded.model(torch.tensor([tokens]), features_only=True)
    return states, np.array(engine.forward_batch([tokens]).last_hidden_state)


class _Engine(NamedTuple):
    """How the engine represents and runs a kind of model."""

    spec: str  # the class of its specification
    modules: Dict[str, str]  # for each side, the path of the module in our model
    runs: str  # the engine's class that runs the folder
    both: Callable[..., Tuple[Tensor, Any]]  # outputs of our model and of the engine


_SOURCE, _TARGET = {"source": "encoder"}, {"target": "decoder"}
_ENGINES = {
    TRANSLATION.name: _Engine(
        "TransformerSpec", {**_SOURCE, **_TARGET}, "Translator", _translation
    ),
    CAUSAL.name: _Engine("TransformerDecoderModelSpec", _TARGET, "Generator", _language_model),
    MASKED.name: _Engine(
        "TransformerEncoderModelSpec", {"source": "encoder.sentence_encoder"}, "Encoder", _encoder
    ),
}


def _difference(
    kind: Kind, loaded: Loaded, folder: str, limits: Dict[str, Dict[str, Any]]
) -> float:
    """The largest difference of outputs between both models, on texts below ``exact_below``."""
    say_on_terminal("comparing the two models")
    *_, runs, both = _ENGINES[kind.name]
    engine = getattr(import_extra("ctranslate2", "--verify"), runs)(folder, compute_type="default")
    sides = [
        _sentences(getattr(loaded.task, f"{side}_dictionary"), exact or limits["longest"][side], n)
        for n, (side, exact) in enumerate(limits["exact_below"].items(), 1)
    ]
    outputs = [both(loaded, engine, *sentences) for sentences in zip(*sides)]
    return max(largest(ours, torch.as_tensor(theirs)) for ours, theirs in outputs)


def _same_translations(kind: Kind, loaded: Loaded, folder: str, path: str) -> Tuple[int, int]:
    """How many lines of a file both models translate identically, and how many lines it has."""
    if kind is not TRANSLATION:
        raise UsageError(f"--verify-file {path}: is for translation models only; drop it")
    lines = [line.split() for line in read_lines(path, f"--verify-file {path}") if line.strip()]
    say_on_terminal(f"translating {path} with both models")
    engine = import_extra("ctranslate2", "--verify-file").Translator(folder)
    results = engine.translate_batch(
        lines,
        beam_size=BEAM.size,
        length_penalty=BEAM.penalty,
        max_decoding_length=BEAM.max_length,
        max_batch_size=BEAM.batch,
        batch_type="tokens",
    )
    found = FairseqEngine(loaded).translate(lines, [[]] * len(lines), BEAM)
    pairs = zip((hypotheses[0].tokens for hypotheses in found), results)
    return sum(ours == theirs.hypotheses[0] for ours, theirs in pairs), len(lines)


formats.register_format(
    NAME,
    summary="a folder for CTranslate2: translation models, language models and encoders",
    exporter=CTranslate2Exporter(),
)
