"""Shaw, Transformer-XL and DeBERTa against stored outputs of fairseq2 and transformers."""

import pytest
import torch
from support.content_dependent import Parts

from fairseq_posenc.attention.functional import additive_mask, attend_with_weights
from fairseq_posenc.encodings.base import Content


def visible(case, inputs, length, keys):
    """The mask of a reference: causal, padded on the right, both or neither."""
    lengths = inputs["key_lens"] if "padded" in case else torch.full((3,), keys)
    padding = torch.arange(keys) >= lengths[:, None]
    real = (torch.arange(length) < lengths[:, None])[..., None, None]  # of equally many queries
    like = inputs["q"]
    return additive_mask(length, keys, "causal" in case, padding, like), real


def attended(parts, inputs, mask):
    """Output (B, T, H, D) and weights (B, H, T, S) for references laid out as (B, T, H, D)."""
    q, k, v = (inputs[name].transpose(1, 2) for name in "qkv")
    scale, terms = parts.encoding.scale, parts.terms.float()
    logits = terms(Content(None, q, k, scale, None, None), parts.vectors(q, k), {})
    more = (lambda w: terms.relative_values(None, w)) if terms.needs_weights else None
    out, weights = attend_with_weights(q, k, v, scale, mask + logits, relative_values=more)
    return out.transpose(1, 2), weights


class TestOtherImplementations:
    """fairseq2's modules."""

    @pytest.mark.parametrize(
        "file, case",
        [("shaw_values", c) for c in ("full", "padded", "causal", "causal_padded")]
        + [("shaw_cached_query", c) for c in ("full", "causal")],
    )
    def test_shaw(self, golden, file, case):
        ref = golden(file)
        causal, inputs = "causal" in case, ref["inputs"]
        flags = {"shaw_max_distance": 4, "shaw_values": True, "causal": causal}
        parts = Parts("shaw", heads=2, head_dim=8, **flags)
        own = parts.terms["shaw"]
        with torch.no_grad():  # where later keys are hidden, we have no vectors for them
            for table, name in ((own.key_table, "k"), (own.value_table, "v")):
                table.weight.copy_(
                    ref["state_dict"][f"rel_{name}_embed.weight"][: len(table.weight)]
                )
        mask, real = visible(case, inputs, inputs["q"].size(1), 11)
        out, weights = attended(parts, inputs, mask)
        want, want_weights = ref["outputs"][case], ref["outputs"][case + "_weights"]
        torch.testing.assert_close(out * real, want * real, atol=1e-5, rtol=1e-5)
        real = real.transpose(1, 2)
        torch.testing.assert_close(weights * real, want_weights * real, atol=1e-5, rtol=1e-5)

    @pytest.mark.parametrize("case", ["full", "padded", "causal"])
    def test_transformer_xl(self, golden, case):
        ref = golden("transformer_xl")
        parts = Parts("transformer_xl", heads=2, head_dim=8)
        own, state = parts.terms["transformer_xl"], ref["state_dict"]
        with torch.no_grad():
            own.proj.weight.copy_(state["r_proj.weight"])
            own.u.copy_(state["u_bias"].unsqueeze(1))
            own.v.copy_(state["v_bias"].unsqueeze(1))
        r = parts.tables["transformer_xl"](torch.arange(-10, 11))
        torch.testing.assert_close(r, ref["outputs"]["r_table"], atol=1e-5, rtol=0)
        mask, real = visible(case, ref["inputs"], 11, 11)
        out, weights = attended(parts, ref["inputs"], mask)
        want, want_weights = ref["outputs"][case], ref["outputs"][case + "_weights"]
        torch.testing.assert_close(out * real, want * real, atol=1e-5, rtol=1e-5)
        real = real.transpose(1, 2)
        torch.testing.assert_close(weights * real, want_weights * real, atol=1e-5, rtol=1e-5)

    @pytest.mark.parametrize("released", [False, True])
    def test_deberta(self, golden, released):
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
