"""``RobertaForMaskedLM`` and its classifiers: learned positions, post-norm layers, biases.

The first position is numbered one above the padding symbol.  Whatever config.json says, the output
layer uses GELU, and the classifier uses the hyperbolic tangent.
"""

from typing import Any, Dict, Mapping, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.huggingface import table as t
from fairseq_posenc.exchange.huggingface.convert import register_class
from fairseq_posenc.exchange.huggingface.encoder_texts import MaskedTexts, padding_of
from fairseq_posenc.exchange.huggingface.entries import ACTIVATIONS, activation, rate
from fairseq_posenc.exchange.reader import Config, ForeignParameters
from fairseq_posenc.models import kinds
from fairseq_posenc.models.kinds import ENCODER, MASKED, Settings

#: Settings of the output layer, and settings of classification heads.
_OUTPUT = ("lm_head", "untie_weights_roberta")
_POOLED = ("pooler_activation_fn", "spectral_norm_classification_head", "pooler")


def output(modules: Mapping[str, str], **more: Any) -> t.Architecture:
    """The architecture of a masked language model, with the modules of its output layer.

    Args:
        modules: the class's names of modules, by our names without ``LM_HEAD``.
    """
    ours = {kinds.LM_HEAD + name: theirs for name, theirs in modules.items()}
    return t.Architecture(ours, any=(*_POOLED, "pooler_norm"), **more)


def classifiers(
    modules: Mapping[str, str], of_tokens: Mapping[str, str], prefix: str, **more: Any
) -> Dict[str, t.Architecture]:
    """The architectures of a sequence classifier and of a token classifier, by name.

    Args:
        modules: the class's names of modules in the sequence classifier, by our names.
        of_tokens: the same for the token classifier; a single projection has an empty name.
        prefix: the prefix of the names of both architectures.
    """
    found = {}
    for what, start, head, names in (
        ("Sequence", kinds.CLASSIFICATION_HEADS, kinds.SENTENCE_HEAD, modules),
        ("Token", kinds.TOKEN_HEADS, "token_classification_head", of_tokens),
    ):
        ours = {f"{start}{{}}.{name}".rstrip("."): theirs for name, theirs in names.items()}
        unused = (*_OUTPUT, *(_POOLED if "" in names else ()))
        found[f"{prefix}For{what}Classification"] = t.Architecture(
            ours, start, any=unused, usual=head, **more
        )
    return found


def sizes(side: str = "encoder") -> Tuple[t.Group, ...]:
    """The entries for the sizes of a stack; *side* is the prefix of its settings."""
    return (
        t.entry("num_hidden_layers", (f"{side}_layers",)),
        t.entry("num_attention_heads", (f"{side}_attention_heads",)),
        t.entry("intermediate_size", (f"{side}_ffn_embed_dim",)),
    )


HIDDEN_SIZE = t.entry("hidden_size", ("encoder_embed_dim", "encoder_input_dim"))
#: Entries that are false for every encoder.
ENCODERS = (
    t.fixed("is_decoder", False, written=False),
    t.fixed("add_cross_attention", False, written=False, why="it needs another model's states"),
)
#: The modules of a layer like BERT's.
BERT_LAYER = (
    *t.joints("attention.self.", query=t.Q, key=t.K, value=t.V),
    *t.joints("attention.output.", dense=t.OUT, LayerNorm=t.NORM_1),
    *t.joints("intermediate.", dense=t.FC1),
    *t.joints("output.", dense=t.FC2, LayerNorm=t.NORM_2),
)
#: The modules of BERT's sequence classifier, and of its token classifier.
BERT_HEADS = ({"dense": "classifier.dense", "out_proj": "classifier.out_proj"}, {"": "classifier"})
_TABLE, _LONGEST = "roberta.embeddings.position_embeddings.weight", "max_position_embeddings"


def _longest(config: Config, known: Settings) -> Settings:
    rows = config.length(_LONGEST) - padding_of(config) - 1
    if rows < 1:
        raise UsageError(
            f"{config.path}: {_LONGEST} is {config.length(_LONGEST)}, but positions begin after "
            f"pad_token_id {padding_of(config)}, so no position is left"
        )
    return {"max_positions": rows, "num_positions": rows}


def _count_rows(state: ForeignParameters, entries: Dict[str, Any]) -> None:
    """Write the number of rows of the position table, including rows before the first position."""
    entries[_LONGEST] = len(state[_TABLE])


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
                segments="roberta.embeddings.token_type_embeddings.weight",
            ),
        ),
        entries=(
            HIDDEN_SIZE,
            *sizes(),
            *ENCODERS,
            t.entry("layer_norm_eps", ("layer_norm_eps",), Config.factor, 1e-12),
            t.fixed("position_embedding_type", "absolute", written=False),
            activation("hidden_act"),
            rate("hidden_dropout_prob", "dropout", usual=0.1),
            rate("attention_probs_dropout_prob", "attention_dropout", usual=0.1),
            rate(
                *("classifier_dropout", "pooler_dropout"),
                usual=lambda config: config.fraction("hidden_dropout_prob", 0.1),
            ),
            t.entry(
                *("type_vocab_size", ("num_segments",), Config.size, 2),
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
        unused=("roberta.pooler.",),
        texts=MaskedTexts(counted=True),
        before_writing=_count_rows,
    ),
)
