"""What the classes of transformers cannot express: each export names the flag."""

import re

import pytest
from support.causal_checkpoints import LLAMA, ROTARY
from support.conversion import refuses
from support.foreign_models import MODERN, ROFORMER_LM, trained
from support.translations import EXPRESSED as TRANSLATIONS
from support.translations import NORMS_FIRST, SHARED, write_translation

from fairseq_posenc.models.kinds import CAUSAL

#: What the classes of masked language models express, as far as it is not the default.
EXPRESSED = {
    "hf-roformer": {},
    "hf-roberta": {"position_encoding": "learned"},
    "hf-modernbert": {
        **MODERN,
        **{"encoder_layers": 3, "local_window": "200,4,4", "rotary_base": "500,100*2"},
    },
}
POST_NORM = {"encoder_normalize_before": False, "skip_first_norm": False}
LEARNED = {"position_encoding": "learned", "rotary_base": 10000.0}
BIASED = {"norm": "layer", "no_bias": False}


@pytest.mark.parametrize(
    "name, heads, changed, words",
    [
        ("hf-roformer", ["head"], {}, "--pooler-activation-fn tanh.*only supports gelu"),
        ("hf-roberta", [], {"position_encoding": "rotary"}, "--position-encoding rotary.*learned"),
        ("hf-roberta", [], {"activation_fn": "relu"}, "--activation-fn relu.*gelu"),
        ("hf-roberta", [], {"encoder_normalize_before": True}, "--encoder-normalize-before True"),
        ("hf-roberta", [], {"encoder_input_dim": 8}, "--encoder-input-dim 8.*only supports 16"),
        ("hf-roberta", [], {"causal": True}, "--causal True"),
        ("hf-roberta", ["x"], {"pooler_activation_fn": "relu"}, "--pooler-activation-fn.*tanh"),
        ("hf-modernbert", [], {"skip_first_norm": False}, "--skip-first-norm False"),
        ("hf-modernbert", [], POST_NORM, "normalize-before"),
        ("hf-modernbert", [], {"feed_forward": "mlp"}, "--feed-forward mlp.*geglu"),
        ("hf-modernbert", [], {"local_window": "200,4,6"}, "200,4,6.*one window"),
        ("hf-modernbert", [], {"rotary_base": "500,100,700"}, "500,100,700.*one base"),
        ("hf-modernbert", [], {"rotary_fraction": 0.5}, "--rotary-fraction 0.5"),
        ("hf-modernbert", [], {"local_global_tokens": 1}, "--local-global-tokens 1"),
        ("hf-modernbert", [], {"num_segments": 2}, "--num-segments 2"),
        ("hf-modernbert", [], LEARNED, "--position-encoding"),
        ("hf-modernbert", ["head"], {}, "--pooler-norm False.*only supports True"),
    ],
)
def test_masked_language_models(tmp_path, name, heads, changed, words):
    path = trained(tmp_path / "ours", *heads, **{**EXPRESSED[name], **changed})
    said = refuses([str(path)], "export", name, path, tmp_path / "out")
    assert re.search(words, said), said


@pytest.mark.parametrize(
    "name, usual, changed, words",
    [
        ("hf-llama", LLAMA, BIASED, "--norm layer"),
        ("hf-llama", LLAMA, {"rotary_base": "500,10000"}, "--rotary-base 500,10000"),
        ("hf-llama", LLAMA, {"rotary_fraction": 0.5}, "--rotary-fraction 0.5"),
        ("hf-llama", LLAMA, {"qk_norm": True}, "--qk-norm True"),
        ("hf-llama", LLAMA, {"position_encoding": "t5"}, "--position-encoding t5"),
        ("hf-gpt-neox", LLAMA, {}, "--norm rms"),
        ("hf-bloom", ROTARY, {}, "--position-encoding rotary"),
        ("hf-gpt2", ROTARY, {}, "--position-encoding rotary"),
        ("hf-roformer", ROFORMER_LM, {"lm_head": "projection"}, "--lm-head projection"),
        (
            "hf-roformer",
            ROFORMER_LM,
            {"decoder_normalize_before": True},
            "--decoder-normalize-before True",
        ),
        ("hf-roformer", ROFORMER_LM, {"no_scale_embedding": False}, "--no-scale-embedding False"),
        ("hf-roformer", ROFORMER_LM, {"layernorm_embedding": False}, "--layernorm-embedding False"),
        ("hf-roformer", ROFORMER_LM, {"position_encoding": "alibi"}, "--position-encoding alibi"),
        (
            "hf-roformer",
            ROFORMER_LM,
            {"decoder_input_dim": 8, "decoder_output_dim": 8},
            "--decoder-output-dim 8",
        ),
    ],
)
def test_language_models(tmp_path, name, usual, changed, words):
    pytest.importorskip("safetensors", reason="the weights are written with it")
    path = trained(tmp_path / "ours", kind=CAUSAL, **{**usual, **changed})
    refuses([words], "export", name, path, tmp_path / "out")


T5 = TRANSLATIONS["t5"][1]
ROTARY_FLAGS = ["--position-encoding", "rotary"]


@pytest.mark.parametrize(
    "name, flags, words",
    [
        ("hf-marian", ROTARY_FLAGS, "--position-encoding rotary"),
        ("hf-marian", ["--position-encoding", "sinusoidal", *SHARED], "hf-remote-code holds"),
        ("hf-marian", ["--position-encoding", "learned", *SHARED], "hf-remote-code holds"),
        ("hf-marian", ["--position-encoding", "none", *SHARED], "hf-remote-code holds"),
        ("hf-marian", ["--position-encoding", "sinusoidal", *NORMS_FIRST], "normalize-before True"),
        ("hf-marian", ["--position-encoding", "learned", "--norm", "rms"], "--norm rms"),
        ("hf-marian", ["--position-encoding", "learned", "--kv-heads", "2"], "--kv-heads 2"),
        ("hf-bart", ["--position-encoding", "learned"], "--layernorm-embedding False"),
        ("hf-m2m100", TRANSLATIONS["mbart"][1], "--layernorm-embedding True"),
        ("hf-t5", [*T5, "--qk-norm"], "--qk-norm True"),
        ("hf-t5", [*T5, "--t5-products"], "--t5-products True"),
        ("hf-t5", [*T5, "--decoder-ffn-embed-dim", "40"], "--decoder-ffn-embed-dim 40"),
        ("hf-t5", [flag for flag in T5 if flag not in SHARED], "--share-all-embeddings"),
        ("hf-remote-code", [*ROTARY_FLAGS, "--rotary-value"], "--rotary-value True"),
        ("hf-remote-code", ["--position-encoding", "shaw"], "shaw: the code of the folder has"),
        ("hf-remote-code", [*ROTARY_FLAGS, "--layer", "gated"], "--layer gated"),
        ("hf-remote-code", ["--position-encoding", "alibi,none"], "have different biases"),
    ],
)
def test_translation_models(tmp_path, name, flags, words):
    pytest.importorskip("safetensors", reason="the weights are written with it")
    path = write_translation(tmp_path / "ours", *flags)
    refuses([words], "export", name, path, tmp_path / "out")
