"""What transformers' RoFormer classes call things, for both directions."""

from typing import Dict, NamedTuple, Optional

import torch
from torch import Tensor

from fairseq_posenc.convert import huggingface
from fairseq_posenc.convert.base import Reference
from fairseq_posenc.convert.hf_config import SENTENCE_HEAD, config_of
from fairseq_posenc.convert.huggingface import Folder
from fairseq_posenc.convert.native import CLASSIFICATION_HEADS, ENCODER, LM_HEAD, PAD, TOKEN_HEADS
from fairseq_posenc.convert.reader import Reader
from fairseq_posenc.encodings.rotary import frequencies
from fairseq_posenc.errors import UsageError

BASE = "roformer."
TABLE = BASE + "encoder.embed_positions.weight"
SEGMENTS = ENCODER + "embed_segments.weight"
_EMBEDDING = {
    ENCODER + "layernorm_embedding": BASE + "embeddings.LayerNorm",
}
_PROJECT = {ENCODER + "embed_project": BASE + "embeddings_project"}
#: In every layer.
PROJECTIONS = {
    "self_attn.q_proj": "attention.self.query",
    "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value",
    "self_attn.out_proj": "attention.output.dense",
    "fc1": "intermediate.dense",
    "fc2": "output.dense",
}
_NORMS = {
    "self_attn_layer_norm": "attention.output.LayerNorm",
    "final_layer_norm": "output.LayerNorm",
}
_LM = {
    LM_HEAD + "dense": "cls.predictions.transform.dense",
    LM_HEAD + "layer_norm": "cls.predictions.transform.LayerNorm",
}
DECODER = "cls.predictions.decoder."
LM_BIAS = "cls.predictions.bias"
#: In files of older versions; no output of these models depends on them.
UNUSED = (BASE + "pooler.", BASE + "embeddings.position_ids", "cls.seq_relationship.")

#: ``norm_type`` and ``use_bias`` of what each format reads; the first is transformers' own.
_VERSIONS = {"hf-roformer": ("layer_norm", True), "roformer-v2": ("rms_norm", False)}


def check_version(folder: Folder, format: str) -> None:
    """Refuse a folder that *format* does not read, and say which does.

    Raises:
        UsageError: ``norm_type`` or ``use_bias`` is another.
    """
    usual = _VERSIONS["hf-roformer"]
    config = folder.config
    found = (config.get("norm_type", usual[0]), config.get("use_bias", usual[1]))
    if found == _VERSIONS[format]:
        return
    known = {version: name for name, version in _VERSIONS.items()}
    if found in known:
        advice = f"that is not for {format}; import it with {known[found]}"
    else:
        pairs = (f"{norm} with {bias} ({name})" for (norm, bias), name in known.items())
        advice = f"known: {' and '.join(pairs)}"
    raise UsageError(
        f"{config_of(folder)}: norm_type is {found[0]} and use_bias is {found[1]}; {advice}"
    )


class Architecture(NamedTuple):
    """What a class of transformers puts on the encoder."""

    modules: Dict[str, str]
    head: Optional[str] = None
    language_model: bool = False


def classifier(name: str) -> Architecture:
    prefix = f"{CLASSIFICATION_HEADS}{name}."
    modules = {prefix + part: "classifier." + part for part in ("dense", "out_proj")}
    return Architecture(modules, head=name)


def token_classifier(name: str) -> Architecture:
    return Architecture({TOKEN_HEADS + name: "classifier"}, head=name)


ARCHITECTURES = {
    "RoFormerForMaskedLM": Architecture(_LM, language_model=True),
    "RoFormerForCausalLM": Architecture(_LM, language_model=True),
    "RoFormerForSequenceClassification": classifier(SENTENCE_HEAD),
    "RoFormerForTokenClassification": token_classifier("token_classification_head"),
}


def names_of(layers: int, projected: bool, architecture: Architecture) -> Dict[str, str]:
    """Their name of each of our parameters, vocabulary and segments apart."""
    modules = {**_EMBEDDING, **(_PROJECT if projected else {}), **architecture.modules}
    for layer in range(layers):
        for ours, theirs in {**PROJECTIONS, **_NORMS}.items():
            modules[f"{ENCODER}layers.{layer}.{ours}"] = f"{BASE}encoder.layer.{layer}.{theirs}"
    return {
        f"{ours}.{kind}": f"{theirs}.{kind}"
        for ours, theirs in modules.items()
        for kind in ("weight", "bias")
    }


def sine_table(length: int, head_dim: int) -> Tensor:
    """Sines and cosines of every position, (length, D)."""
    positions = torch.arange(length, dtype=torch.float64)
    angles = positions.unsqueeze(1) * frequencies(head_dim, 10000.0)
    return torch.cat((angles.sin(), angles.cos()), dim=1).float()


def drop_table(reader: Reader) -> None:
    """Leave out their table of positions, for which we have no place, nor a need.

    Raises:
        UsageError: it is not the one that all RoFormers have.
    """
    if TABLE not in reader:
        return
    table = reader.take(TABLE)
    if not torch.allclose(table, sine_table(*table.shape), atol=2e-3):  # it may have been in fp16
        raise UsageError(
            f"{reader.path}: {TABLE} is not the usual table of sines (base 10000), and there "
            "is no place for another"
        )


def reference_for(path: str, architecture: str, order: Tensor) -> Reference:
    """Their logits of our tokens.

    Args:
        path: the folder.
        architecture: the class.
        order: their number of each of ours, (V,).
    """

    def logits(tokens: Tensor, segments: Tensor) -> Tensor:
        model = huggingface.load_model(path, architecture)
        with torch.no_grad():
            out = model(
                input_ids=order[tokens],
                attention_mask=tokens.ne(PAD).long(),
                token_type_ids=segments,
            ).logits
        return out[..., order] if ARCHITECTURES[architecture].language_model else out

    return logits
