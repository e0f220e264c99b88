"""Several language pairs at once: fairseq's multilingual Transformer, with any position encoding.

For ``--task multilingual_translation``, where every pair has an encoder and a decoder, its own or
shared.  (``--task translation_multi_simple_epoch`` trains one model; it takes the translation
architectures.)
"""

import dataclasses
from typing import Any, Callable, Dict, List

from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model, register_model_architecture
from fairseq.models.multilingual_transformer import MultilingualTransformerModel
from torch import nn

from fairseq_posenc.config import Field, TranslationConfig, configure, nested
from fairseq_posenc.errors import UsageError
from fairseq_posenc.models.families import refuse_other_families
from fairseq_posenc.models.translation import ROTARY
from fairseq_posenc.modules.decoder import TransformerDecoder
from fairseq_posenc.modules.encoder import TransformerEncoder
from fairseq_posenc.modules.simple import initialise

MODEL = "multilingual_posenc_transformer"
TASK = "multilingual_translation"
PRESETS: Dict[str, Dict[str, Any]] = {MODEL: {}, "multilingual_roformer": ROTARY}

_SHARED = {
    "share_encoder_embeddings": "use one source embedding for all source languages",
    "share_decoder_embeddings": "use one target embedding for all target languages",
    "share_encoders": "use one encoder for all source languages",
    "share_decoders": "use one decoder for all target languages",
}


def _fields() -> List[Field]:
    # the pairs' models are fairseq's own encoder-decoders, which train no alignment
    fields: List[Field] = [
        (field.name, field.type, dataclasses.field(default=None, metadata=field.metadata))
        for field in dataclasses.fields(TranslationConfig)
        if "alignment" not in field.name and not field.name.startswith("_")
    ]
    for name, text in _SHARED.items():
        metadata = {"help": text, "default": False}
        fields.append((name, bool, dataclasses.field(default=None, metadata=metadata)))
    return fields


MultilingualConfig = dataclasses.make_dataclass(
    "MultilingualConfig", _fields(), bases=(FairseqDataclass,)
)


# Without the dataclass: the task has none either, and takes its own flags from the model's
@register_model(MODEL)
class MultilingualModel(MultilingualTransformerModel):
    """One encoder-decoder per language pair, whose attention layers know positions.

    Args:
        encoders: encoder of every pair.
        decoders: decoder of every pair.
    """

    @staticmethod
    def add_args(parser: Any) -> None:
        """Add the flags without defaults, so that what was not given can be told."""
        gen_parser_from_dataclass(parser, MultilingualConfig(), delete_default=True)

    @classmethod
    def build_model(cls, args: Any, task: Any) -> MultilingualTransformerModel:
        """Build the models of all pairs of *task* from a flat configuration.

        Raises:
            UsageError: if the task is another one or the flags contradict each other.
        """
        _refuse_other_tasks(getattr(args, "arch", MODEL), args)
        configure(args, MultilingualConfig, {})
        model = super().build_model(args, task)
        initialise(model, args)
        return model

    @classmethod
    def _get_module_class(
        cls, is_encoder: bool, args: Any, lang_dict: Any, embed_tokens: nn.Embedding, langs: Any
    ) -> nn.Module:
        cfg = nested(args)
        if is_encoder:
            return TransformerEncoder(cfg, lang_dict, embed_tokens)
        return TransformerDecoder(cfg, lang_dict, embed_tokens, cfg.no_cross_attention)


def _refuse_other_tasks(arch: str, args: Any) -> None:
    refuse_other_families("translation", arch, args)
    task = getattr(args, "task", TASK)
    if task != TASK:
        raise UsageError(
            f"--arch {arch} is for --task {TASK}, not for --task {task}, which takes one model, "
            "for example --arch roformer_base"
        )


def _architecture(name: str, preset: Dict[str, Any]) -> Callable[[Any], None]:
    def architecture(args: Any) -> None:
        _refuse_other_tasks(name, args)
        configure(args, MultilingualConfig, preset)

    return architecture


for _name, _preset in PRESETS.items():
    register_model_architecture(MODEL, _name)(_architecture(_name, _preset))
