"""``RobertaForMaskedLM`` and its classifiers: learned positions, norms after residuals, biases.

Its positions begin behind the number of the padding symbol.  Its output layer has GELU, and its
classifier the hyperbolic tangent, whatever config.json says.
"""

from typing import Any, Dict, List, Mapping

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.huggingface import table as t
from fairseq_posenc.exchange.huggingface.convert import register_class
from fairseq_posenc.exchange.huggingface.encoder_texts import MaskedTexts, padding_of
from fairseq_posenc.exchange.huggingface.entries import ACTIVATIONS, activation, rate
from fairseq_posenc.exchange.reader import ForeignParameters, Reader, size_of
from fairseq_posenc.models import kinds
from fairseq_posenc.models.kinds import ENCODER, MASKED, PAD, SEGMENTS, TABLE, Parameters, Settings

#: Settings of the output layer, and those of classification heads.
LM_SETTINGS = ("lm_head", "untie_weights_roberta")
CLASSIFIER_SETTINGS = (
    *("pooler_activation_fn", "spectral_norm_classification_head"),
    *("pooler", "pooler_norm"),
)
#: The name of an imported token classifier.
TOKEN_HEAD = "token_classification_head"


def output(modules: Mapping[str, str], **more: Any) -> t.Architecture:
    """The output layer of a masked language model.

    Args:
        modules: names of the class by ours, behind the start of the names in our output layer.
    """
    ours = {kinds.LM_HEAD + name: theirs for name, theirs in modules.items()}
    return t.Architecture(ours, any=CLASSIFIER_SETTINGS, **more)


def classifiers(
    modules: Mapping[str, str], of_tokens: Mapping[str, str], prefix: str, **more: Any
) -> Dict[str, t.Architecture]:
    """A classifier of texts and one of tokens, by the names of their architectures.

    Args:
        modules: names of the class by ours, in a classifier of texts.
        of_tokens: the same for tokens; the name of ours is empty for a single projection.
        prefix: start of the names of the architectures.
    """
    lacking = {name for name in CLASSIFIER_SETTINGS if name != "pooler_norm"}
    found = {}
    for what, start, head, names, unused in (
        ("Sequence", kinds.CLASSIFICATION_HEADS, kinds.SENTENCE_HEAD, modules, ()),
        ("Token", kinds.TOKEN_HEADS, TOKEN_HEAD, of_tokens, lacking if "" in of_tokens else ()),
    ):
        ours = {f"{start}{{}}.{name}".rstrip("."): theirs for name, theirs in names.items()}
        found[f"{prefix}For{what}Classification"] = t.Architecture(
            ours, start, any=(*LM_SETTINGS, *unused), usual=head, **more
        )
    return found


#: The sizes of encoders, and what none of them is.
SIZES = (
    t.entry("num_hidden_layers", ("encoder_layers",)),
    t.entry("num_attention_heads", ("encoder_attention_heads",)),
    t.entry("intermediate_size", ("encoder_ffn_embed_dim",)),
)
HIDDEN_SIZE = t.entry("hidden_size", ("encoder_embed_dim", "encoder_input_dim"))
ENCODERS = (
    t.fixed("is_decoder", False, written=False),
    t.fixed("add_cross_attention", False, written=False, why="parts of other models are not read"),
)
#: The modules of a layer of BERT's kind.
BERT_LAYER = (
    *t.joints("attention.self.", query=t.Q, key=t.K, value=t.V),
    *t.joints("attention.output.", dense=t.OUT, LayerNorm=t.NORM_1),
    *t.joints("intermediate.", dense=t.FC1),
    *t.joints("output.", dense=t.FC2, LayerNorm=t.NORM_2),
)
#: A classifier of BERT's kind, and one of tokens.
BERT_HEADS = ({"dense": "classifier.dense", "out_proj": "classifier.out_proj"}, {"": "classifier"})
_SEGMENT_ROWS = "roberta.embeddings.token_type_embeddings.weight"
_TABLE, _LONGEST = "roberta.embeddings.position_embeddings.weight", "max_position_embeddings"


def _longest(config: Config, known: Settings) -> Settings:
    rows = config.length(_LONGEST) - padding_of(config) - 1
    if rows < 1:
        raise UsageError(
            f"{config.path}: {_LONGEST} is {config.length(_LONGEST)}, but positions begin behind "
            f"pad_token_id {padding_of(config)}; none is left"
        )
    return {"max_positions": rows, "num_positions": rows}


def _read_segments(reader: Reader, settings: Settings, config: Config) -> List[str]:
    """Move the vectors of segments; one for all tokens is added to the positions."""
    if settings["num_segments"]:
        reader.move(_SEGMENT_ROWS, SEGMENTS)
        return []
    segment, table = reader.take(_SEGMENT_ROWS), reader.parameters[TABLE]
    if segment.shape != (1, table.size(1)):
        raise UsageError(
            f"{reader.path}: {_SEGMENT_ROWS} has size {size_of(segment)}, but type_vocab_size 1 "
            f"requires 1 x {table.size(1)}"
        )
    table[PAD + 1 :] += segment
    return []


def _write_segments(
    state: ForeignParameters, ours: Parameters, settings: Settings, entries: Dict[str, Any]
) -> List[str]:
    """Write the vectors of segments, and the number of rows of positions."""
    table = state[_TABLE]
    state[_SEGMENT_ROWS] = ours.pop(SEGMENTS, table.new_zeros(1, table.size(1)))
    entries[_LONGEST] = len(table)
    return []


register_class(
    "hf-roberta",
    t.TransformersClass(
        "roberta",
        {
            "RobertaForMaskedLM": output(
                {"dense": "lm_head.dense", "layer_norm": "lm_head.layer_norm"},
                values={"activation_fn": ("gelu",)},
            ),
            **classifiers(*BERT_HEADS, "Roberta"),
        },
        MASKED,
        stacks=(
            t.Stack(
                ENCODER,
                "roberta.encoder.layer.{}.",
                BERT_LAYER,
                "roberta.embeddings.word_embeddings.weight",
                (t.Joint("roberta.embeddings.LayerNorm", ("layernorm_embedding",)),),
                t.Table(_TABLE, lambda config: padding_of(config) + 1),
            ),
        ),
        entries=(
            HIDDEN_SIZE,
            *SIZES,
            *ENCODERS,
            t.entry("layer_norm_eps", ("layer_norm_eps",), Config.factor, 1e-12),
            t.fixed("position_embedding_type", "absolute", written=False),
            activation("hidden_act"),
            rate("hidden_dropout_prob", "dropout", usual=0.1),
            rate("attention_probs_dropout_prob", "attention_dropout", usual=0.1),
            rate(
                "classifier_dropout",
                "pooler_dropout",
                usual=lambda config: config.fraction("hidden_dropout_prob", 0.1),
            ),
            t.entry(
                "type_vocab_size",
                ("num_segments",),
                usual=2,
                into=lambda number: 0 if number == 1 else number,
                back=lambda number: number or 1,
            ),
            t.Group(_LONGEST, ("max_positions",), _longest, lambda settings, path: {}),
        ),
        always={
            "position_encoding": "learned",
            "pooler_activation_fn": "tanh",
            "activation_dropout": 0.0,
        },
        values={"activation_fn": ACTIVATIONS},
        output="lm_head.decoder.weight",
        output_biases=("lm_head.bias", "lm_head.decoder.bias"),
        inputs=("input_ids", "token_type_ids", "attention_mask"),
        unused=("roberta.pooler.",),
        texts=MaskedTexts(counted=True),
        after_reading=_read_segments,
        before_writing=_write_segments,
    ),
)
