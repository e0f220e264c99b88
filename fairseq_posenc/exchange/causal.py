"""Language models in the names of masked ones, and back.

A causal RoFormer has the layers, the embeddings and the output layer of a masked one, so both are
converted under the names of ``posenc_masked_lm``; here they become those of ``posenc_lm``.
"""

import dataclasses

from fairseq_posenc.exchange.base import Imported
from fairseq_posenc.exchange.kinds import CAUSAL, MASKED, Settings
from fairseq_posenc.exchange.native import NativeCheckpoint

#: The settings with other names: masked, causal.
_RENAMED = {
    MASKED.length: CAUSAL.length,
    **{
        f"encoder_{name}": f"decoder_{name}"
        for name in ("layers", "embed_dim", "ffn_embed_dim", "attention_heads", "normalize_before")
    },
}
_BACK = {ours: masked for masked, ours in _RENAMED.items()}
#: What only masked language models have.
_MASKED_ONLY = (
    "causal",
    "encoder_input_dim",
    "load_checkpoint_heads",
    "pooler_activation_fn",
    "pooler_dropout",
    "untie_weights_roberta",
)
#: What makes a language model one of BERT's shape.
_SHAPE: Settings = {"lm_head": "roberta", "no_scale_embedding": True}

#: What follows from the position encoding.
FOLLOWING = ("no_token_positional_embeddings",)


def as_language_model(imported: Imported) -> Imported:
    """The language model that a causal masked one is."""
    return dataclasses.replace(
        imported,
        settings=language_model_settings(imported.settings),
        parameters={_causal_name(name): value for name, value in imported.parameters.items()},
        origin={_causal_name(name): value for name, value in imported.origin.items()},
        kind=CAUSAL,
    )


def as_masked(checkpoint: NativeCheckpoint) -> NativeCheckpoint:
    """A language model as a causal masked one; a masked one as it is."""
    if checkpoint.kind is MASKED:
        return checkpoint
    settings = checkpoint.settings
    masked = {_BACK.get(name, name): value for name, value in settings.items()}
    masked["causal"] = True
    masked["encoder_input_dim"] = settings["decoder_embed_dim"]
    masked["untie_weights_roberta"] = not settings["share_decoder_input_output_embed"]
    parameters = {_masked_name(name): value for name, value in checkpoint.parameters.items()}
    return checkpoint._replace(settings=masked, parameters=parameters, kind=MASKED)


def language_model_settings(masked: Settings) -> Settings:
    """The settings of a language model, given those of a causal masked one."""
    kept = {name: value for name, value in masked.items() if name not in _MASKED_ONLY}
    return {
        **{_RENAMED.get(name, name): value for name, value in kept.items()},
        **_SHAPE,
        "decoder_input_dim": masked["encoder_embed_dim"],
        "decoder_output_dim": masked["encoder_embed_dim"],
        "tokens_per_sample": masked[MASKED.length],
        "share_decoder_input_output_embed": not masked["untie_weights_roberta"],
    }


def _causal_name(masked: str) -> str:
    """The name of a parameter in a language model."""
    for theirs, ours in ((MASKED.stack, CAUSAL.stack), (MASKED.head, CAUSAL.head)):
        if masked.startswith(theirs):
            return ours + masked[len(theirs) :]
    return masked


def _masked_name(name: str) -> str:
    """The name of a parameter of a language model in a masked one."""
    for theirs, ours in ((CAUSAL.head, MASKED.head), (CAUSAL.stack, MASKED.stack)):
        if name.startswith(theirs):
            return ours + name[len(theirs) :]
    return name
