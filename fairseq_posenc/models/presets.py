"""Settings shared by architectures of several families, one dictionary per recipe."""

from typing import Any, Dict

ROTARY: Dict[str, Any] = {"position_encoding": "rotary"}
PERFORMER: Dict[str, Any] = {**ROTARY, "attention": "favor"}  # RoFormer section 4.4

#: RoFormerV2 (GAU section 4.1): RoFormer without biases and without parameters in its norms
ROFORMER_V2: Dict[str, Any] = {
    **ROTARY,
    "norm": "rms",
    "layer_norm_eps": 1e-12,
    "no_bias": True,
    "init_weights": "truncated_normal",
}
#: GAU section 4.1: gated units in place of RoFormerV2's layers
GAU: Dict[str, Any] = {**ROFORMER_V2, "layer": "gated"}
#: GAU at 128 channels, for which the paper's key size of 128 is too large
GAU_TINY: Dict[str, Any] = {**GAU, "gau_key_size": 32}
