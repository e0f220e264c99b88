"""Folders that CTranslate2 loads: translation models, language models and encoders.

It exports models of this plug-in and of fairseq.  A model is built and loaded as by fairseq's
commands, then its parameters are copied into the specification of the engine's Python package.
A setting with the role ``model`` is accepted if it is listed here or beside the encoding that reads
it, if it has its default, or if it has no effect in the model at hand.
"""

import os
from argparse import Namespace
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

import torch
from fairseq.data import Dictionary

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.basics.files import new_folder, refuse_existing
from fairseq_posenc.basics.lines import json_text
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.checkpoints.loader import Loaded
from fairseq_posenc.checkpoints.settings import task_settings
from fairseq_posenc.configuration.features import side_encoding
from fairseq_posenc.exchange import formats
from fairseq_posenc.exchange.ctranslate2.positions import EXPRESSIONS, refuse_encodings
from fairseq_posenc.exchange.ctranslate2.stacks import (
    ACTIVATIONS,
    Parameters,
    decoder_spec,
    encoder_spec,
    epsilon_of,
)
from fairseq_posenc.exchange.ctranslate2.verify import compare_engine, same_translations
from fairseq_posenc.exchange.formats import Report, Wanted
from fairseq_posenc.exchange.native import (
    DATA,
    LANGUAGES,
    MODEL_OVERRIDES,
    NativeCheckpoint,
    read_source,
)
from fairseq_posenc.flags.options import SIDES
from fairseq_posenc.models.kinds import CAUSAL, COPIES, HEADS, MASKED, TRANSLATION, Kind
from fairseq_posenc.serving.model_folder import EXPORT_SETTINGS
from fairseq_posenc.version import __version__

NAME, ENGINE = "ctranslate2", "CTranslate2"
QUANTIZATION = formats.Flag(
    "quantization",
    "type of the weights: int8, int8_float16, float16, bfloat16, ... (float32)",
    "TYPE",
)
VERIFY_FILE = formats.Flag(
    "verify_file", "text in subwords, a sentence a line: count identical beam translations", "FILE"
)
#: Settings of any value beside those of an encoding; refuse_encodings checks the encodings.
_READ = (
    *formats.FROM_PARAMETERS,
    *(f"{side}_{name}" for side in SIDES for name in ("input_dim", "output_dim")),
    "num_positions",
)
#: Settings of which some values are expressed.
_VALUES = {
    "activation_fn": tuple(ACTIVATIONS),
    "norm": ("layer", "rms"),
    "feed_forward": ("mlp", "glu"),
}
#: Settings of an encoder's output layers, which are not exported, and of its segments, which the
#: exported encoder takes as token types.
_OF_ENCODERS = (
    *("lm_head", "untie_weights_roberta", "pooler_activation_fn"),
    *("spectral_norm_classification_head", "pooler", "pooler_norm", "num_segments", "segments"),
)


#: By the kind of model, the engine's specification and the modules of its sides.
_SPECIFICATIONS = {
    TRANSLATION.name: ("TransformerSpec", {"source": "encoder", "target": "decoder"}),
    CAUSAL.name: ("TransformerDecoderModelSpec", {"target": "decoder"}),
    MASKED.name: ("TransformerEncoderModelSpec", {"source": "encoder.sentence_encoder"}),
}


class Built(NamedTuple):
    """A filled specification."""

    spec: Any  # the engine's
    longest: Dict[str, int]  # the longest input in tokens of each stack, by side
    exact_below: Dict[str, Optional[int]]  # length from which on positions are approximate, by side


class CTranslate2Exporter(formats.Exporter):
    """Writes a folder that CTranslate2 loads."""

    flags = (DATA, *LANGUAGES, QUANTIZATION, VERIFY_FILE, MODEL_OVERRIDES)

    def export(self, wanted: Wanted) -> Report:
        """See :class:`~fairseq_posenc.exchange.formats.Exporter`.

        The difference is that of log-probabilities, or of an encoder's states; only an export in
        float32 has to agree.
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
    """Load the checkpoint that *wanted* names, or refuse one that CTranslate2 cannot compute."""
    found = read_source(wanted, ENGINE)
    refuse_settings(found.path, found.kind, found.settings)
    return found


@torch.no_grad()
def fill(loaded: Loaded, kind: Kind) -> Built:
    """The specification of a loaded model, whose settings :func:`refuse_settings` accepts."""
    from ctranslate2.specs import transformer_spec

    task, activation, parameters = loaded.task, loaded.settings["activation_fn"], Parameters()
    name, paths = _SPECIFICATIONS[kind.name]
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
        spec.config.bos_token = spec.config.eos_token  # a text starts with it
    heads = HEADS if kind is MASKED else ()
    for left in parameters.left(loaded.model):
        if not left.startswith(heads) and not COPIES.search(left):
            raise UsageError(
                f"{loaded.path}: its parameter {left} has no counterpart in CTranslate2; nothing "
                "is written"
            )
    spec.config.layer_norm_epsilon = epsilon_of(loaded.path, parameters)
    longest = {side: stack.max_positions() for side, stack in stacks.items()}
    return Built(spec, longest, {side: exact for side, (_, exact) in filled.items()})


@torch.no_grad()
def write(loaded: Loaded, kind: Kind, wanted: Wanted) -> Report:
    """Write a loaded model, whose settings :func:`refuse_settings` accepts, and compare it."""
    built = fill(loaded, kind)
    difference = same = None
    quantization, text = wanted.get("quantization"), wanted.get("verify_file")
    told: Dict[str, Any] = {  # what translating reads
        "kind": kind.name,
        "longest": built.longest,
        "exact_below": built.exact_below,
        "quantization": quantization or "float32",
        "fairseq_posenc": __version__,
    }
    with new_folder(wanted.out) as side:
        built.spec.validate()
        built.spec.optimize(quantization=quantization)
        built.spec.save(side)
        Path(side, EXPORT_SETTINGS).write_text(json_text(told), "utf-8")
        if wanted.verify:
            limits = {name: built.exact_below[name] or n for name, n in built.longest.items()}
            difference = compare_engine(kind, loaded, side, limits, quantization)
        if text is not None:
            same = same_translations(kind, loaded, side, text)
        files = [os.path.join(wanted.out, name) for name in sorted(os.listdir(side))]
    notes = _notes(kind, loaded, built)
    return Report(files, notes, difference, "fairseq", same, told["quantization"])


def refuse_settings(path: str, kind: Kind, settings: Mapping[str, Any]) -> None:
    """Refuse what CTranslate2 cannot compute."""
    known = {*_READ, *(_OF_ENCODERS if kind is MASKED else ())}
    known.update(flag for each in EXPRESSIONS.values() for flag in each.flags)
    formats.refuse_inexpressible(
        path, kind.family, settings, formats.Expressible(ENGINE, known, _VALUES)
    )
    cfg = Namespace(**settings)
    for side in SIDES:
        if settings.get("position_encoding") is not None:  # fairseq's own have tables, or nothing
            own = f"{side}_position_encoding"
            flag = flag_of(own if settings.get(own) else "position_encoding")
            refuse_encodings(path, flag, side_encoding(cfg, side))


def _notes(kind: Kind, loaded: Loaded, built: Built) -> List[str]:
    notes = [
        f"the {side} is computed as in training below {limit} tokens"
        for side, limit in built.exact_below.items()
        if limit is not None
    ]
    if kind is MASKED and any(n.startswith(HEADS) for n, _ in loaded.model.named_parameters()):
        notes.append("the states of the encoder are exported, without its output layers")
    if loaded.settings.get("segments") == "pairs":
        notes.append("give the segments of pairs as token types")
    return notes


def _symbols(dictionary: Dictionary) -> List[str]:
    """The symbols of a dictionary, in order, with the engine's name of padding."""
    return ["<blank>" if symbol == dictionary.pad_word else symbol for symbol in dictionary.symbols]


formats.register_format(
    NAME,
    summary="folder for the engine CTranslate2, translation and language models, encoders",
    exporter=CTranslate2Exporter(),
)
