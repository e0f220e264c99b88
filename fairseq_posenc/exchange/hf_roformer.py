"""RoFormer as ``transformers`` saves it.

Masked and causal language models and sequence and token classifiers can be imported, including
those with ``rotary_value`` or an ``embedding_size`` other than ``hidden_size``.  Models with
``--position-encoding rotary`` that the stock classes can express can be exported.

Their pairs of channels are interleaved, which is the default here; ``half`` is reordered on export.
The saved sine table is checked and left out, since it is computed here.  Token types become
segments.  A sequence classifier applies ``hidden_act``, for which fairseq has a separate flag,
``--pooler-activation-fn``.
"""

from functools import partial
from typing import Tuple

from torch import Tensor

from fairseq_posenc.exchange.base import ForeignModel, Format, Imported
from fairseq_posenc.exchange.causal import as_language_model
from fairseq_posenc.exchange.dictionary import Vocabulary
from fairseq_posenc.exchange.hf_parameters import (
    DECODER,
    has_own_output,
    reader_of,
    token_embedding_of,
)
from fairseq_posenc.exchange.hf_vocabulary import read_vocabulary
from fairseq_posenc.exchange.huggingface import Folder
from fairseq_posenc.exchange.kinds import LM_HEAD
from fairseq_posenc.exchange.roformer_config import settings_of
from fairseq_posenc.exchange.roformer_export import write
from fairseq_posenc.exchange.roformer_names import (
    ARCHITECTURES,
    BASE,
    LM_BIAS,
    drop_unused,
    names_of,
    open_roformer,
    reference_for,
    table_note,
)


def read(folder: Folder, vocabulary: Vocabulary) -> Imported:
    """Settings and parameters of a RoFormer, for :class:`Format`."""
    config = folder.config
    name = _class_of(folder)
    architecture = ARCHITECTURES[name]
    settings = settings_of(config)
    settings["pooler_activation_fn"] = settings["activation_fn"]

    reader = reader_of(folder, vocabulary, BASE)
    projected = settings["encoder_input_dim"] != settings["encoder_embed_dim"]
    for ours, theirs in names_of(settings["encoder_layers"], projected, architecture).items():
        reader.move(theirs, ours)
    if architecture.language_model:
        bias, own_weight = _output_bias(folder)
        reader.move_rows(bias, LM_HEAD + "bias")
        if own_weight:
            reader.move_rows(DECODER + "weight", LM_HEAD + "weight")
        reader.drop(DECODER, LM_BIAS)
        settings["untie_weights_roberta"] = own_weight
    notes = drop_unused(reader, config)
    reader.finish(f"config.json ({name})")
    settings["load_checkpoint_heads"] = architecture.head is not None
    if architecture.head is not None:
        notes.append(f"the language-model head is untrained, since {folder.path} has none")
        notes.append(config.classes_note(architecture.head))
    imported = Imported(settings, reader.parameters, reader.origin, architecture.head, notes)
    if name != "RoFormerForCausalLM":
        return imported
    if settings["causal"] and not projected:
        return as_language_model(imported)
    reason = "embedding_size is not hidden_size" if settings["causal"] else "is_decoder is false"
    notes.append(f"becomes a masked language model, not a language model, since {reason}")
    return imported


def foreign(folder: Folder, order: Tensor) -> ForeignModel:
    """The model as transformers computes it."""
    name = _class_of(folder)
    description = f"{name} of transformers{table_note(folder.parameters)}"
    return ForeignModel(reference_for(folder.path, name, order), description)


def _class_of(folder: Folder) -> str:
    return folder.config.architecture(list(ARCHITECTURES))


def _output_bias(folder: Folder) -> Tuple[str, bool]:
    """Name of the output bias, and whether the output weight is untied."""
    own = has_own_output(
        folder, (DECODER + "weight", token_embedding_of(BASE)), (DECODER + "bias", LM_BIAS)
    )
    bias = DECODER + "bias" if own and DECODER + "bias" in folder.parameters else LM_BIAS
    return bias, own and DECODER + "weight" in folder.parameters


HF_ROFORMER = Format(
    name="hf-roformer",
    summary="a folder of transformers' RoFormer classes",
    open=partial(open_roformer, format="hf-roformer"),
    vocabulary=read_vocabulary,
    read=read,
    foreign=foreign,
    write=write,
)
