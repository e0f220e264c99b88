"""What the classes of transformers cannot express: each export names the flag.

Single settings are in test_classes.py, for every class; here are those that depend on others, and
heads, formats without a table and flags of other packages.
"""

import dataclasses
import re

import pytest
import torch
from support.conversion import refuses
from support.expressed import EXPRESSED, checkpoint_of
from support.foreign_models import trained
from support.translations import SHARED, write_translation

from fairseq_posenc.checkpoints.reading import read_checkpoint
from fairseq_posenc.exchange import native
from fairseq_posenc.models.masked_lm import MASKED_LM

FIELDS = {field.name: field for field in dataclasses.fields(MASKED_LM.dataclass)}


@pytest.mark.parametrize(
    "name, heads, changed, words",
    [
        ("values", ["head"], {}, "--pooler-activation-fn tanh.*only supports gelu"),
        ("roberta", ["x"], {"pooler_activation_fn": "relu"}, "--pooler-activation-fn.*tanh"),
        ("roberta", [], {"activation_fn": "relu"}, "--activation-fn relu.*gelu"),
        ("no windows", ["head"], {}, "--pooler-norm False.*only supports True"),
        ("bases", [], {"local_window": "160,4,6"}, "160,4,6.*one window"),
        ("bases", [], {"rotary_base": "500,100,700"}, "500,100,700.*one base"),
        ("llama", [], {"rotary_base": "500,10000"}, "--rotary-base 500,10000"),
        ("neox", [], {"rotary_base": "500,10000"}, "--rotary-base 500,10000"),
        ("roformer lm", [], {"lm_head": "projection"}, "--lm-head projection"),
        ("roformer lm", [], {"decoder_normalize_before": True}, "--decoder-normalize-before True"),
        ("roformer lm", [], {"no_scale_embedding": False}, "--no-scale-embedding False"),
        ("roformer lm", [], {"layernorm_embedding": False}, "--layernorm-embedding False"),
        (
            "roformer lm",
            [],
            {"position_encoding": "t5", "rotary_pairing": None},
            "--position-encoding t5",
        ),
        (
            *("roformer lm", [], {"decoder_input_dim": 8, "decoder_output_dim": 8}),
            "--decoder-output-dim 8",
        ),
        ("marian", [], {"position_encoding": "sinusoidal"}, "sinusoidal.*hf-remote-code holds"),
        ("marian", [], {"activation_fn": "tanh"}, "learned.*MarianMTModel.*hf-remote-code holds"),
        ("marian", [], {"position_encoding": "none"}, "none.*hf-remote-code holds"),
        ("bart", [], {"share_all_embeddings": False}, "--share-all-embeddings"),
        ("t5", [], {"share_all_embeddings": False}, "--share-all-embeddings"),
        ("t5", [], {"decoder_ffn_embed_dim": 40}, "--decoder-ffn-embed-dim 40"),
    ],
)
def test_classes(tmp_path, name, heads, changed, words):
    path = checkpoint_of(tmp_path / "ours", name, heads=heads, **changed)
    said = refuses([], "export", EXPRESSED[name].target, path, tmp_path / "out")
    assert re.search(words, said), said


ROTARY = ["--position-encoding", "rotary"]


@pytest.mark.parametrize(
    "flags, words",
    [
        ([*ROTARY, "--rotary-value"], "--rotary-value True"),
        (["--position-encoding", "shaw"], "shaw: the code of the folder has"),
        ([*ROTARY, "--layer", "gated"], "--layer gated"),
        ([*ROTARY, "--decoder-output-dim", "24"], "--decoder-output-dim 24"),
        (["--position-encoding", "alibi,none"], "have different biases"),
    ],
)
def test_translation_models_with_code(tmp_path, flags, words):
    pytest.importorskip("safetensors", reason="the weights are written with it")
    path = write_translation(tmp_path / "ours", *flags, *SHARED)
    refuses([str(path), words], "export", "hf-remote-code", path, tmp_path / "out")


@pytest.mark.parametrize("target", ["hf-llama", "hf-roberta", "hf-bart"])
def test_models_of_another_kind(tmp_path, target):
    path = checkpoint_of(tmp_path / "ours", "neox" if target != "hf-llama" else "roberta")
    words = [str(path), "posenc_"]
    refuses(words, "export", target, path, tmp_path / "out")


def changed(path, **settings):
    """A checkpoint with other settings, which a command line may refuse."""
    state = read_checkpoint(path)
    state["cfg"]["model"].update(settings)
    torch.save(state, path)
    return path


def test_former_names_are_exported_and_never_printed(tmp_path):
    """A checkpoint from before a renaming, and the flags that are printed after an import."""
    path = changed(trained(tmp_path / "ours", norm="rms"), norm="unit", init_weights="usual")
    refuses(["--norm rms", "only supports layer"], "export", "hf-roformer", path, tmp_path / "out")
    former = [name for name, field in FIELDS.items() if field.metadata.get("role") == "former"]
    assert {"shaw_distance", "deberta_distance"} <= set(former)
    settings = {**dict.fromkeys(former, 3), "shaw_max_distance": 4, "own_setting": 1}
    assert native.flags_of(settings) == "--arch posenc_masked_lm --shaw-max-distance 4"
