"""The BetterTransformer fast path of fairseq 0.12.2, disabled."""

import types
from typing import Callable, Dict

from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor, nn

from fairseq_posenc.basics.versions import TORCH_VERSION

#: Duplicates of a layer's parameters, which fairseq 0.12.2 registers and saves.
_DUPLICATES = tuple(
    f"{part}_{kind}"
    for part in ("in_proj", "out_proj", "fc1", "fc2")
    for kind in ("weight", "bias")
)


def no_fast_path(layer: nn.Module) -> None:
    """Disable the fast path of a fairseq encoder layer, and remove its duplicate parameters.

    In evaluation of a loaded checkpoint, fairseq 0.12.2 calls a fused kernel instead of
    ``self_attn``: position encodings inside the attention are silently skipped (torch 1.12), or
    generation stops with "Mask Type should be defined" (1.13 and 2.4).  It also registers
    duplicates of eight parameters in every layer, which newer fairseq refuses to load.  As they are
    no longer written or read, all versions write the same entries and load checkpoints of 0.12.2.
    """
    layer._register_load_state_dict_pre_hook(_drop_duplicates)
    if not hasattr(layer, "can_use_fastpath"):
        return
    layer.can_use_fastpath = False  # type: ignore[assignment]
    for name in _DUPLICATES:
        layer._parameters.pop(name, None)
    # 0.12.2 overrides this method to fill the duplicates, and fails if a projection is absent
    load = types.MethodType(nn.Module._load_from_state_dict, layer)
    layer._load_from_state_dict = load  # type: ignore[method-assign]


def stock_layers_take_padding(init: Callable[..., None]) -> Callable[..., None]:
    """Let fairseq's own Transformer generate and validate with fairseq 0.12.2.

    Measured with PyTorch 1.13 and 2.4: the kernel of the fast path rejects every batch with
    padding ("Mask Type should be defined"), so stock models, needed as baselines, train but do not
    translate.  With the repair, their layers keep all parameters and skip the kernel.
    """

    if TORCH_VERSION < (1, 13):
        return init

    def wrapper(layer: TransformerEncoderLayerBase, *args: object, **kwargs: object) -> None:
        init(layer, *args, **kwargs)
        if hasattr(layer, "can_use_fastpath"):
            layer.can_use_fastpath = False

    return wrapper


def _drop_duplicates(state_dict: Dict[str, Tensor], prefix: str, *_: object) -> None:
    for name in _DUPLICATES:
        state_dict.pop(prefix + name, None)
