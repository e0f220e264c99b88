"""Models whose architecture is registered elsewhere, such as IndicTrans2's ``transformer_18_18``.

Most are fairseq's own models under another name, but a model of another toolkit may compute
something else with the same parameters.  So a name is only replaced where a user asks for it.
"""

from typing import Any, Mapping, Optional

from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_REGISTRY

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.reading import model_settings

#: How the names of the layers begin in fairseq's models.
_STACKS = {
    "encoder.sentence_encoder.": "roberta",
    "encoder.": "transformer",
    "decoder.": "transformer_lm",
}


def architecture(checkpoint: Mapping[str, Any]) -> str:
    """The name of a checkpoint's architecture, or of its model."""
    settings = model_settings(checkpoint)
    return str(settings.get("_name") or settings.get("arch"))


def stock_twin(checkpoint: Mapping[str, Any]) -> Optional[str]:
    """fairseq's model with the parameters of a model that is registered elsewhere, if there is one.

    Returns:
        its name; None where the architecture is known here, or no model has such parameters.
    """
    name = architecture(checkpoint)
    if name in ARCH_MODEL_NAME_REGISTRY or name in MODEL_REGISTRY:
        return None
    state = checkpoint["model"]
    has = [
        twin
        for stack, twin in _STACKS.items()
        if f"{stack}layers.0.self_attn.k_proj.weight" in state
    ]
    if has == ["transformer_lm"] and any(parameter.startswith("encoder.") for parameter in state):
        return None
    return has[0] if has else None


def refuse_unknown(path: str, checkpoint: Mapping[str, Any]) -> None:
    """Refuse to build a model whose architecture is not registered.

    Raises:
        UsageError: naming what would work.
    """
    name = architecture(checkpoint)
    if name in ARCH_MODEL_NAME_REGISTRY or name in MODEL_REGISTRY:
        return
    twin = stock_twin(checkpoint)
    other = (
        ""
        if twin is None
        else (
            f", or, if it is fairseq's {twin} under another name, --model-overrides "
            f"\"{{'arch': '{twin}'}}\""
        )
    )
    raise UsageError(
        f"{path}: is of --arch {name}, which is not registered here; give the --user-dir that "
        f"registers it{other}"
    )
