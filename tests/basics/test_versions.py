"""Versions of libraries, and what the installed PyTorch can do."""

import pytest
import torch

from fairseq_posenc.basics import versions
from fairseq_posenc.basics.versions import parse_version

pytestmark = pytest.mark.properties


def test_versions_are_read_from_any_spelling():
    spellings = {"2.13.0+cpu": (2, 13), "1.13.0a0+git1": (1, 13), "2.0": (2, 0)}
    assert {text: parse_version(text) for text in spellings} == spellings
    with pytest.raises(ValueError):
        parse_version("nightly")


def test_attention_constants_tell_the_truth():
    attend = getattr(torch.nn.functional, "scaled_dot_product_attention", None)
    assert versions.HAS_SDPA == (attend is not None)
    if attend is None:
        assert not versions.SDPA_HAS_SCALE and not versions.SDPA_SAFE_MASKS
        return
    q = torch.randn(1, 1, 3, 8, requires_grad=True)
    assert versions.SDPA_HAS_SCALE == ("scale" in (attend.__doc__ or ""))
    mask = torch.zeros(3, 3)
    mask[1] = float("-inf")
    out = attend(q, q, q, attn_mask=mask)
    out.sum().backward()
    safe = bool(out[0, 0, 1].eq(0).all()) and bool(torch.isfinite(q.grad).all())
    assert safe or not versions.SDPA_SAFE_MASKS
