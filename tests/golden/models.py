"""Tiny models of packages: RoFormer (transformers), RoFormerV2 (roformer) and GAU-alpha."""

from functools import partial
from typing import Any, Callable, Dict, List, Tuple

import gau_alpha
import roformer
import torch
import transformers
from torch import Tensor, nn

from golden import Made, instantiate, normal, source

SYMBOLS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *"今天气很好我们去公园吧",
    *"abcdefghijklmn",
]
SIZES = {
    "vocab_size": len(SYMBOLS),
    "hidden_size": 32,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "type_vocab_size": 2,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "pad_token_id": 0,
}
HEADS = {"num_hidden_layers": 2, "num_attention_heads": 4}
#: Rows of two sentences, as symbol numbers; the first sentence ends with [SEP].
TEXTS = [
    [[2, 21, 4, 16, 25, 12, 3], [10, 28, 20, 22, 13, 3]],
    [[2, 27, 22, 4, 15, 3], [8, 26, 3]],
    [[2, 12, 25, 3], []],
]
LONG = [
    TEXTS[0],
    [TEXTS[1][0], [8, 26, 16, 9, 22, 17, 3]],
    [[2, 12, 25, 26, 3], [18, 7, 29, 11, 5, 24, 16, 3]],
]
SHORT = [[[14], []], [[20, 10], []], [[26, 24, 9], []]]


def batch(texts: List[List[List[int]]], left: bool = False) -> Dict[str, List[List[int]]]:
    """Inputs under transformers' names, padded to the longest text."""
    size = max(len(first) + len(second) for first, second in texts)
    rows: Dict[str, List[List[int]]] = {
        **{"input_ids": [], "token_type_ids": []},
        "attention_mask": [],
    }
    for first, second in texts:
        length = len(first) + len(second)
        padding = [0] * (size - length)
        values = first + second, [0] * len(first) + [1] * len(second), [1] * length
        for row, value in zip(rows.values(), values):
            row.append(padding + value if left else value + padding)
    return rows


BATCHES = {"full": batch(LONG), "right": batch(TEXTS), "left": batch(TEXTS, left=True)}


def distribution(name: str, shape: torch.Size) -> List[Any]:
    """A random distribution unlike any default, so that an unloaded parameter is noticed."""
    if "embeddings.weight" in name:
        return normal(*shape, std=0.5)
    if len(shape) == 2:
        return normal(*shape, std=round(1.2 * shape[1] ** -0.5, 3))
    scale = name.endswith(("LayerNorm.weight", "scaleoffset.weight"))
    return normal(*shape, mean=float(scale), std=0.2)


def describe(source: str, model: nn.Module, batches: Dict[str, Any], **more: Any) -> Dict[str, Any]:
    """The description of a model with *batches* as inputs."""
    model.config.architectures = [type(model).__name__]
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    first = {p.data_ptr(): name for name, p in trained.items()}
    tied = {
        name: first[p.data_ptr()]
        for name, p in model.state_dict().items()
        if name not in trained and p.data_ptr() in first
    }
    return {
        "source": source,
        "config": model.config.to_diff_dict(),
        "meta": {"symbols": SYMBOLS},
        "parameters": {name: distribution(name, p.shape) for name, p in trained.items()},
        "tied": tied,
        "integers": batches,
    }


def logits_of(model: nn.Module, state: Dict[str, Tensor], inputs: Dict[str, Tensor]) -> Tensor:
    """Logits, computed in float64; zero at padding."""
    missing, unexpected = model.load_state_dict(state, strict=False)
    if unexpected or any("embed_positions" not in name for name in missing):
        raise ValueError(f"missing {missing}, unexpected {unexpected}")
    logits = model.double().eval()(**inputs).logits.float()
    return logits if logits.dim() == 2 else logits * inputs["attention_mask"].unsqueeze(-1)


def roformer_model(kind: str, batches: Tuple[str, ...], name: str) -> Made:
    config = transformers.RoFormerConfig(**SIZES, **HEADS, embedding_size=32, num_labels=3)
    model = getattr(transformers, f"RoFormerFor{kind}")(config)
    described = describe(
        source("transformers", "models/roformer"), model, {key: BATCHES[key] for key in batches}
    )
    reference = instantiate(name, described)
    outputs = {
        f"logits_{key}": logits_of(model, reference["state_dict"], inputs)
        for key, inputs in reference["inputs"].items()
    }
    table = model.roformer.encoder.embed_positions.weight.float()
    return described, {**outputs, "embed_positions": table}


def roformer_v2(name: str) -> Made:
    second = {"norm_type": "rms_norm", "use_bias": False, "hidden_act": "relu"}
    config = roformer.RoFormerConfig(
        **SIZES, **HEADS, **second, embedding_size=32, pooler_activation="linear"
    )
    model = roformer.RoFormerForMaskedLM(config)
    described = describe(source("roformer"), model, BATCHES)
    reference = instantiate(name, described)
    return described, {
        f"logits_{key}": logits_of(model, reference["state_dict"], inputs)
        for key, inputs in reference["inputs"].items()
    }


def unpadded(run: Callable[[Dict[str, Tensor]], Tensor], inputs: Dict[str, Tensor]) -> Tensor:
    """Logits of right-padded rows, each computed alone and without its padding.

    gau-alpha 0.0.3 also multiplies its mask by the logarithm of the length, so that a text of one
    token would attend to its padding.
    """
    rows, size = [], inputs["input_ids"].size(1)
    for row, length in enumerate(inputs["attention_mask"].sum(1).tolist()):
        logits = run({key: value[row : row + 1, :length] for key, value in inputs.items()})
        rows.append(nn.functional.pad(logits[0], (0, 0, 0, size - length)))
    return torch.stack(rows)


def gau(normalisation: str, name: str) -> Made:
    config = gau_alpha.GAUAlphaConfig(
        **SIZES,
        num_hidden_layers=3,
        attention_key_size=16,
        normalization=normalisation,
        classifier_dropout=0.0,
        summary_type="first",
    )
    model = gau_alpha.GAUAlphaForMaskedLM(config)
    batches = {**BATCHES, "short": batch(SHORT)}
    described = describe(source("gau-alpha"), model, batches)
    reference = instantiate(name, described)
    run = partial(logits_of, model, reference["state_dict"])
    inputs = reference["inputs"]
    outputs = {f"logits_{key}": run(inputs[key]) for key in BATCHES}
    return described, {**outputs, "logits_short": unpadded(run, inputs["short"])}


MAKERS = {
    "hf_roformer_mlm": partial(roformer_model, "MaskedLM", tuple(BATCHES)),
    "hf_roformer_cls": partial(roformer_model, "SequenceClassification", ("full", "right")),
    "roformerv2_mlm": roformer_v2,
    "gau_alpha_mlm": partial(gau, "softmax_plus"),
    "gau_alpha_mlm_softmax": partial(gau, "softmax"),
}
