"""Transformer-XL's positions against stored outputs of fairseq2."""

import pytest
import torch
from support.formulas import Parts, assert_attends_as


@pytest.mark.parametrize("case", ["full", "padded", "causal"])
def test_transformer_xl_is_that_of_fairseq2(golden, case):
    ref = golden("transformer_xl")
    parts = Parts("transformer_xl", heads=2, head_dim=8)
    own, state = parts.terms["transformer_xl"], ref["state_dict"]
    with torch.no_grad():
        own.proj.weight.copy_(state["r_proj.weight"])
        own.u.copy_(state["u_bias"].unsqueeze(1))
        own.v.copy_(state["v_bias"].unsqueeze(1))
    r = parts.tables["transformer_xl"](torch.arange(-10, 11))
    torch.testing.assert_close(r, ref["outputs"]["r_table"], atol=1e-5, rtol=0)
    assert_attends_as(ref, case, parts, 11, 11)
