"""RoFormerV2 folders: read, compared with their formulas and their stored outputs."""

import pytest
import torch
from support.conversion import SYMBOLS, convert, load, reference_folder
from support.foreign_models import assert_stored_logits, v2_weights, write_v2

from fairseq_posenc.exchange.huggingface.roformer import sine_table
from fairseq_posenc.exchange.released_formulas import transformer_layer

DECODER = "cls.predictions.decoder.weight"


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"hidden_act": "gelu", "layer_norm_eps": 0.5},
        {"rotary_value": True, "num_attention_heads": 4},
        {"tie_word_embeddings": False},
    ],
    ids=str,
)
def test_matches_the_formulas(tmp_path, out, capsys, config):
    state = v2_weights()
    state["roformer.encoder.embed_positions.weight"] = sine_table(
        40, 16 // config.get("num_attention_heads", 2)
    )
    state["roformer.pooler.dense.weight"] = torch.randn(16, 16)
    if "tie_word_embeddings" in config:
        state[DECODER] = torch.randn(len(SYMBOLS), 16)
    source = write_v2(tmp_path / "source", state, **config)
    convert("import", "roformer-v2", source, out, "--verify")
    printed = capsys.readouterr().out
    assert "formulas in float64 (transformers has no such class)" in printed
    assert "left out roformer.pooler.dense.weight" in printed
    assert "--norm rms" in printed and "--no-bias" in printed and "--lm-head tied" in printed
    model, _ = load(out)
    assert not any(name.endswith("bias") for name, _ in model.named_parameters())
    tied = model.encoder.lm_head.weight is model.encoder.sentence_encoder.embed_tokens.weight
    assert tied == ("tie_word_embeddings" not in config)


@pytest.mark.parametrize("safe", [True, False])
def test_stored_outputs(golden, tmp_path, out, safe):
    """Logits that the released code computed, and that our formulas give, too."""
    expected = golden("roformerv2_mlm")
    source = reference_folder(tmp_path / "source", expected, safe)
    symbols = expected["meta"]["symbols"]
    assert_stored_logits("roformer-v2", transformer_layer, expected, source, symbols, out)
