"""fairseq's multilingual Transformer with any position encoding.

For ``--task multilingual_translation``, where every language pair has an encoder and a decoder,
which can be shared.  (``--task translation_multi_simple_epoch`` trains a single model and uses the
translation architectures.)
"""

from typing import List, Sequence

from fairseq.data import Dictionary
from fairseq.models.multilingual_transformer import MultilingualTransformerModel
from fairseq.tasks import FairseqTask
from torch import nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.configuration.fields import Field, stock_field
from fairseq_posenc.configuration.resolve import configure, nested
from fairseq_posenc.configuration.stacks import translation_stacks
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.layers.initialisation import initialise
from fairseq_posenc.models.family import Family, Preset
from fairseq_posenc.models.presets import ROTARY
from fairseq_posenc.models.translation import transformer_fields
from fairseq_posenc.stacks.decoder import TransformerDecoder
from fairseq_posenc.stacks.encoder import TransformerEncoder

TASK = "multilingual_translation"

_SHARED = {
    "share_encoder_embeddings": "use one source embedding for all source languages",
    "share_decoder_embeddings": "use one target embedding for all target languages",
    "share_encoders": "use one encoder for all source languages",
    "share_decoders": "use one decoder for all target languages",
}


def _own_fields() -> List[Field]:
    shared = [stock_field(name, bool, text, False) for name, text in _SHARED.items()]
    return transformer_fields() + shared


def _complete(cfg: Options, preset: Preset, settings: Options) -> None:
    arch = option(cfg, "arch", MULTILINGUAL.model)
    task = option(cfg, "task", TASK)
    if task != TASK:
        raise UsageError(
            f"--arch {arch} is for --task {TASK}, not for --task {task}, which takes one model, "
            "for example --arch roformer_base"
        )
    configure(cfg, MULTILINGUAL.dataclass, preset)


MULTILINGUAL = Family(
    model="multilingual_posenc_transformer",
    what="a multilingual translation model",
    example="multilingual_roformer",
    tasks=(TASK,),
    own_fields=_own_fields,
    presets={"multilingual_roformer": ROTARY},
    stacks=translation_stacks,
    complete=_complete,
    for_hydra=False,  # the task has no dataclass either
)


@MULTILINGUAL.register
class MultilingualModel(MultilingualTransformerModel):
    """One encoder-decoder per language pair, with position encodings in its attention.

    Args:
        encoders: encoder of every pair.
        decoders: decoder of every pair.
    """

    @classmethod
    def build_model(cls, args: Options, task: FairseqTask) -> MultilingualTransformerModel:
        """Build the models of all pairs of *task* from a flat configuration.

        Raises:
            UsageError: the task is a different one, or flags contradict each other.
        """
        _complete(args, {}, args)
        model = super().build_model(args, task)
        initialise(model, args)
        return model

    @classmethod
    def _get_module_class(
        cls,
        is_encoder: bool,
        args: Options,
        lang_dict: Dictionary,
        embed_tokens: nn.Embedding,
        langs: Sequence[str],
    ) -> nn.Module:
        cfg = nested(args)
        if is_encoder:
            return TransformerEncoder(cfg, lang_dict, embed_tokens)
        return TransformerDecoder(cfg, lang_dict, embed_tokens, cfg.no_cross_attention)
