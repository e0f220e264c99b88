"""DeBERTa's parameters, and stored outputs of transformers."""

import pytest
import torch
from support.formulas import Parts
from support.helpers import tiny


def test_deberta_has_one_table_a_stack_and_projections_in_every_layer():
    state = tiny("deberta", "--deberta-max-distance", "9").state_dict()
    tables = {key: value.shape for key, value in state.items() if "table" in key}
    assert tables == {
        f"{side}.position_vectors.deberta.table.weight": (18, 32) for side in ("encoder", "decoder")
    }
    for side in ("encoder", "decoder"):
        for layer in (0, 1):
            for projection in ("q_proj", "k_proj"):
                key = f"{side}.layers.{layer}.self_attn.position_terms.deberta.{projection}.weight"
                assert state[key].shape == (32, 32)


@pytest.mark.parametrize("released", [False, True])
def test_deberta_is_that_of_transformers(golden, released):
    ref = golden("deberta")
    flags = {"deberta_max_distance": 4, "deberta_released": released}
    parts = Parts("deberta", heads=2, head_dim=8, **flags)
    own, state = parts.terms["deberta"], ref["state_dict"]
    with torch.no_grad():
        own.k_proj.weight.copy_(state["pos_proj.weight"])
        own.q_proj.weight.copy_(state["pos_q_proj.weight"])
        parts.tables["deberta"].table.weight.copy_(state["rel_embeddings"])
    q, k = (ref["inputs"][name].double() for name in "qk")
    got = parts.logits(q, k, parts.encoding.scale)
    want = ref["outputs"]["c2p"] + ref["outputs"]["p2c_released" if released else "p2c"]
    torch.testing.assert_close(got.float(), want, atol=1e-5, rtol=1e-5)
