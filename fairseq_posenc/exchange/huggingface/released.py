"""Import of the released RoFormerV2 and GAU-alpha, for which transformers has no classes.

"Implementation and Experiments for GAU-based Model", Liu, sections 4.1 and 5.1.  Both models have
no biases, have norms without parameters, and tie the output projection to the embedding.  RoFormer
classes of transformers ignore ``norm_type`` and ``use_bias``, so they cannot run RoFormerV2.

GAU-alpha divides logits by √s; in ``softmax_plus`` and ``squared_relu``, n is the number of real
tokens.  A model with ``attention_scale`` false does not divide by √s; its import multiplies the
scale of queries by √s to compensate.  A classifier is a single projection of the first position.
fairseq's head also has a dense layer, which becomes the identity.
"""

import math
from typing import Callable, List, Optional

from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange import released_formulas as formulas
from fairseq_posenc.exchange.formats import Imported, register_format
from fairseq_posenc.exchange.huggingface import folder as hf
from fairseq_posenc.exchange.huggingface import table as t
from fairseq_posenc.exchange.huggingface.convert import ClassImporter, read_class
from fairseq_posenc.exchange.huggingface.entries import activation, rate
from fairseq_posenc.exchange.huggingface.masked import BERT_LAYER, HIDDEN_SIZE, output
from fairseq_posenc.exchange.huggingface.roformer import ENTRIES, ROFORMER
from fairseq_posenc.exchange.reader import Config, Reader
from fairseq_posenc.models import kinds, presets


class FormulaImporter(ClassImporter):
    """Reads a folder of a class; the reference computes each layer with *layer*, in float64."""

    def __init__(self, source: t.TransformersClass, layer: Callable[..., Tensor]) -> None:
        super().__init__(source)
        self.layer = layer

    def read(self, path: str, vocab: Optional[str]) -> Imported:
        """See :class:`~fairseq_posenc.exchange.formats.Importer`."""
        folder = hf.open_folder(path, self.source.model_type)
        imported = read_class(self.source, folder, vocab)
        entries = {**folder.config.entries, "hidden_act": imported.settings["activation_fn"]}
        foreign = formulas.encoder_model(
            *(self.layer, folder.parameters, entries, imported.vocabulary.order),
            ROFORMER.output if imported.head is None else "classifier",
        )
        return imported._replace(foreign=foreign)


_OTHER = "hf-roformer reads layer_norm with use_bias true"
ROFORMER_V2 = ROFORMER._replace(
    architectures={"RoFormerForMaskedLM": output({})},
    stacks=(
        ROFORMER.stacks[0]._replace(
            joints=tuple(j for j in BERT_LAYER if j.ours[0] not in (t.NORM_1, t.NORM_2)), outside=()
        ),
    ),
    entries=(
        *ENTRIES,
        activation("hidden_act"),
        t.fixed("norm_type", "rms_norm", "layer_norm", why=_OTHER),
        t.fixed("use_bias", False, True, why=_OTHER),
        # the causal class of RoFormerV2 attends to later tokens unless it is given a mask
        t.fixed("is_decoder", False),
        t.fixed("embedding_size", lambda settings: settings["encoder_embed_dim"]),
    ),
    always={**presets.ROFORMER_V2, **presets.RELEASED, **ROFORMER.always},
    biases={"": None},
    output_biases=(),
)

_BASE = "gau_alpha."
_HEAD = kinds.CLASSIFICATION_HEADS + kinds.SENTENCE_HEAD


def _expansion(config: Config, known: kinds.Settings) -> kinds.Settings:
    width, channels = config.size("intermediate_size"), known["encoder_embed_dim"]
    if width % channels:
        raise UsageError(
            f"{config.path}: intermediate_size {width} is not a multiple of hidden_size "
            f"{channels}, as --gau-expansion requires"
        )
    return {"gau_expansion": width // channels}


def _read_scales(reader: Reader, settings: kinds.Settings, config: Config) -> List[str]:
    """Move the scales of queries and keys, and make a classifier's dense layer the identity."""
    number, padding = int(reader.vocabulary.order[kinds.PAD]), config.get("pad_token_id", 0)
    if padding != number:
        raise UsageError(
            f"{config.path}: pad_token_id is {padding}, but the padding symbol of "
            f"{reader.vocabulary.source} is number {number}"
        )
    divides = config.one_of("attention_scale", True, (True, False))
    factors = {"q": 1.0 if divides else math.sqrt(settings["gau_key_size"]), "k": 1.0}
    for layer in range(settings["encoder_layers"]):
        for part, factor in factors.items():
            theirs = f"{_BASE}encoder.layer.{layer}.gau.{part}_scaleoffset.weight"
            ours = f"{kinds.ENCODER}layers.{layer}.self_attn.{part}_scale"
            reader.put(ours, reader.take(theirs) * factor, theirs)
    if f"{_HEAD}.out_proj.weight" in reader.parameters:
        reader.put_identity(f"{_HEAD}.dense", settings["encoder_embed_dim"], "classifier")
        settings["pooler_activation_fn"] = "linear"
    note = "attention_scale is false: γ_q was multiplied by √s, as logits are divided by √s here"
    return [] if divides else [note]


GAU_ALPHA = t.TransformersClass(
    "gau_alpha",
    {
        "GAUAlphaForMaskedLM": output({}),
        "GAUAlphaForSequenceClassification": t.Architecture(
            {f"{kinds.CLASSIFICATION_HEADS}{{}}.out_proj": "classifier"},
            kinds.CLASSIFICATION_HEADS,
            entries=(
                t.fixed("summary_type", "first", "last"),
                t.fixed("summary_use_proj", False),
                t.fixed("summary_activation", ""),
            ),
            usual=kinds.SENTENCE_HEAD,
        ),
    },
    kinds.MASKED,
    stacks=(
        t.Stack(
            kinds.ENCODER,
            _BASE + "encoder.layer.{}.",
            (
                t.Joint("gau.i_dense", ("self_attn.in_proj",)),
                t.Joint("gau.o_dense", ("self_attn.out_proj",)),
            ),
            _BASE + "embeddings.word_embeddings.weight",
            segments=_BASE + "embeddings.token_type_embeddings.weight",
        ),
    ),
    entries=(
        t.entry("num_hidden_layers", ("encoder_layers",)),
        HIDDEN_SIZE,
        t.entry("attention_key_size", ("gau_key_size",)),
        t.Group("intermediate_size", ("gau_expansion",), _expansion, lambda settings, path: {}),
        t.fixed("use_bias", False),
        t.choice("hidden_act", (), "swish", ("swish", "silu")),
        t.fixed("embedding_size", lambda settings: settings["encoder_embed_dim"]),
        t.choice("normalization", ("gau_normaliser",), "softmax_plus", tuple(formulas.NORMALISERS)),
        rate("layer_norm_eps", "layer_norm_eps", usual=1e-12),
        rate("hidden_dropout_prob", "dropout", usual=0.1),
        rate("attention_probs_dropout_prob", "attention_dropout", usual=0.1),
        rate("classifier_dropout", "pooler_dropout", usual=0.1),
        t.entry("max_position_embeddings", ("max_positions",), Config.length, 512),
        t.entry("type_vocab_size", ("num_segments",), usual=2),
    ),
    always={
        **presets.GAU,
        **presets.RELEASED,
        "gau_divisor": "n*s",
        "gau_length": "visible",
        "gau_reference_length": 512,
    },
    output=ROFORMER.output,
    biases={"gau.": None},
    texts=ROFORMER.texts,
    after_reading=_read_scales,
)


register_format(
    "roformer-v2",
    summary="a folder of RoFormerV2's masked language model",
    importer=FormulaImporter(ROFORMER_V2, formulas.transformer_layer),
)
register_format(
    "gau-alpha",
    summary="a folder of GAU-alpha's masked language model or sequence classifier",
    importer=FormulaImporter(GAU_ALPHA, formulas.gated_layer),
)
