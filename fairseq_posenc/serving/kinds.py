"""The kinds of models that can be exported to CTranslate2: what is filled from what."""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from fairseq.data import Dictionary

from fairseq_posenc.models.family import Family, task_settings
from fairseq_posenc.models.language_model import LANGUAGE_MODEL
from fairseq_posenc.models.masked_lm import MASKED_LM
from fairseq_posenc.models.translation import TRANSLATION
from fairseq_posenc.serving.stacks import Parameters, decoder_spec, encoder_spec


class Loaded(NamedTuple):
    """A checkpoint, loaded as fairseq's commands do.

    Args:
        path: the file.
        model: in evaluation mode.
        task: with the dictionaries.
        settings: of the model, complete, by name.
    """

    path: str
    model: Any
    task: Any
    settings: Dict[str, Any]


class Built(NamedTuple):
    """A filled specification.

    Args:
        spec: the engine's.
        longest: the longest input in tokens of each stack, by side.
        exact_below: length from which on positions are approximate, by side.
    """

    spec: Any
    longest: Dict[str, int]
    exact_below: Dict[str, Optional[int]]


class Kind(NamedTuple):
    """A kind of model that can be exported.

    Args:
        name: ``translation``, ``language model`` or ``encoder``.
        family: this plug-in's.
        stock: fairseq's model of the same structure.
        tasks: the tasks whose inputs the engine reproduces.
        build: fills the specification.
        heads: starts of the names of parameters that are not exported.
    """

    name: str
    family: Family
    stock: str
    tasks: Tuple[str, ...]
    build: Callable[[Loaded, Parameters], Built]
    heads: Tuple[str, ...] = ()


def _translation(loaded: Loaded, parameters: Parameters) -> Built:
    from ctranslate2.specs import transformer_spec

    model, activation = loaded.model, loaded.settings["activation_fn"]
    encoder, encoder_exact = encoder_spec(model.encoder, activation, parameters)
    decoder, decoder_exact = decoder_spec(model.decoder, activation, parameters)
    spec = transformer_spec.TransformerSpec(encoder, decoder)
    spec.register_source_vocabulary(_symbols(loaded.task.source_dictionary))
    spec.register_target_vocabulary(_symbols(loaded.task.target_dictionary))
    spec.config.decoder_start_token = spec.config.eos_token
    spec.config.add_source_eos = True
    longest = {"source": model.encoder.max_positions(), "target": model.decoder.max_positions()}
    return Built(spec, longest, {"source": encoder_exact, "target": decoder_exact})


def _language_model(loaded: Loaded, parameters: Parameters) -> Built:
    from ctranslate2.specs import transformer_spec

    decoder = loaded.model.decoder
    filled, exact = decoder_spec(decoder, loaded.settings["activation_fn"], parameters)
    spec = transformer_spec.TransformerDecoderModelSpec(filled)
    spec.register_vocabulary(_symbols(loaded.task.source_dictionary))
    if not getattr(task_settings(loaded.task), "add_bos_token", False):
        spec.config.bos_token = spec.config.eos_token  # what a text starts with
    return Built(spec, {"target": decoder.max_positions()}, {"target": exact})


def _encoder(loaded: Loaded, parameters: Parameters) -> Built:
    from ctranslate2.specs import transformer_spec

    encoder = loaded.model.encoder.sentence_encoder
    filled, exact = encoder_spec(encoder, loaded.settings["activation_fn"], parameters)
    spec = transformer_spec.TransformerEncoderModelSpec(filled)
    spec.register_vocabulary(_symbols(loaded.task.source_dictionary))
    return Built(spec, {"source": encoder.max_positions()}, {"source": exact})


_HEADS = ("encoder.lm_head.", "classification_heads.", "token_heads.")
KINDS = (
    Kind("translation", TRANSLATION, "transformer", ("translation",), _translation),
    Kind("language model", LANGUAGE_MODEL, "transformer_lm", LANGUAGE_MODEL.tasks, _language_model),
    Kind("encoder", MASKED_LM, "roberta", MASKED_LM.tasks, _encoder, _HEADS),
)


def _symbols(dictionary: Dictionary) -> List[str]:
    """The symbols of a dictionary, in order, with the engine's name of padding."""
    return ["<blank>" if symbol == dictionary.pad_word else symbol for symbol in dictionary.symbols]
