"""Flags of gated attention units."""

from dataclasses import dataclass
from typing import Optional

from fairseq_posenc.attention.normalisers import DIVISORS
from fairseq_posenc.flags.settings import Needs, setting

LENGTHS = ("visible", "reference")
NORMALISERS = ("softmax_plus", "softmax", "squared_relu", "scaled_squared_relu")
SOFTMAX, RELU = NORMALISERS[:2], NORMALISERS[2:]
_GATED: Needs = {"layer": ("gated",)}


@dataclass
class GatedFlags:
    """Flags of the gated attention unit."""

    gau_key_size: Optional[int] = setting(
        128,
        "s, the size of queries and keys",
        role="model",
        at_least=1,
        at_most=2**16,
        needs=_GATED,
    )
    gau_expansion: Optional[int] = setting(
        2,
        "e as a multiple of the channels",
        role="model",
        at_least=1,
        at_most=64,
        needs=_GATED,
    )
    gau_offsets: Optional[bool] = setting(
        False,
        "add learned offsets to queries and keys, beside their factors (GAU section 4.1)",
        role="model",
        needs=_GATED,
    )
    gau_normaliser: Optional[str] = setting(
        "softmax_plus",
        "softmax_plus: softmax of logits times log(n)/log(reference length), where n is the number "
        "of keys that a query may see; softmax; squared_relu: ReLU² over --gau-divisor; "
        "scaled_squared_relu: ReLU² over its sum",
        role="model",
        choices=NORMALISERS,
        needs=_GATED,
    )
    gau_divisor: Optional[str] = setting(
        "n*s",
        "divisor of squared_relu: {choices} (GAU Table 1)",
        role="model",
        choices=DIVISORS,
        needs={"gau_normaliser": RELU},  # scaled as well: logits add to the products
    )
    gau_length: Optional[str] = setting(
        "visible",
        "n in --gau-divisor: visible, the number of keys that a query may see; reference, "
        "--gau-reference-length for all queries",
        role="model",
        choices=LENGTHS,
        needs={"gau_divisor": [name for name in DIVISORS if "n" in name]},
    )
    gau_chunk: Optional[int] = setting(
        None,
        "mixed chunk attention: squared ReLU within chunks of so many tokens, and linear attention "
        "between them (default: none, squared ReLU between all tokens)",
        role="model",
        at_least=1,
        at_most=2**16,
        needs={"gau_normaliser": ("squared_relu",)},
    )
    gau_reference_length: Optional[int] = setting(
        512,
        "reference length, usually that of training, in tokens",
        role="model",
        at_least=2,
        at_most=2**31 - 1,
        needs={"gau_normaliser": ("softmax_plus",), "gau_length": ("reference",)},
    )
