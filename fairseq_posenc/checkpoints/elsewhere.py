"""Models whose architecture is registered elsewhere, such as IndicTrans2's ``transformer_18_18``.

Most are fairseq's own models under another name, but a model of another toolkit may compute
something else with the same parameters.  So a name is only replaced where a user asks for it.
"""

from typing import Any, Mapping, Optional

from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_REGISTRY

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.reading import model_settings
from fairseq_posenc.checkpoints.settings import architecture

#: The start of the names of the layers in fairseq's models; a translation model has those of two.
STACKS = {
    "transformer": "encoder.",
    "transformer_lm": "decoder.",
    "roberta": "encoder.sentence_encoder.",
}


def _registered(checkpoint: Mapping[str, Any]) -> bool:
    name = architecture(model_settings(checkpoint))
    return name in ARCH_MODEL_NAME_REGISTRY or name in MODEL_REGISTRY


def stock_twin(checkpoint: Mapping[str, Any]) -> Optional[str]:
    """fairseq's model with the parameters of a model that is registered elsewhere, if there is one.

    Returns:
        its name; None where the architecture is known here, or no model has such parameters.
    """
    if _registered(checkpoint):
        return None
    state = checkpoint["model"]
    has = [
        twin
        for twin, stack in STACKS.items()
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
    if _registered(checkpoint):
        return
    name, twin, other = architecture(model_settings(checkpoint)), stock_twin(checkpoint), ""
    if twin is not None:
        other = f", or, if it is fairseq's {twin} under another name, --model-overrides "
        other += f"\"{{'arch': '{twin}'}}\""
    raise UsageError(
        f"{path}: is of --arch {name}, which is not registered here; give the --user-dir that "
        f"registers it{other}"
    )
