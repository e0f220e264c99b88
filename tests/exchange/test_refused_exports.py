"""What an export refuses: each names the flag, the parameter or the file.

Single settings are in test_classes.py, for every class; here are those that depend on others,
heads, formats without a table, flags of other packages, and damaged checkpoints.
"""

import re
import shutil

import pytest
import torch
from support.conversion import convert, refuses
from support.expressed import EXPRESSED, checkpoint_of, trained
from support.model_folders import SHARED, write_translation

from fairseq_posenc.checkpoints.reading import load_file, read_checkpoint, write_checkpoint
from fairseq_posenc.exchange import FORMATS
from fairseq_posenc.exchange.transfer import flags_of
from fairseq_posenc.models.kinds import CAUSAL, MASKED, TRANSLATION
from fairseq_posenc.models.masked_lm import MASKED_LM

pytestmark = pytest.mark.refusals

REMOTE, SIZE = "hf-remote-code holds", "--decoder-output-dim 8"


@pytest.mark.parametrize(
    "name, changed, words",
    [
        ("bases", {"local_window": "160,4,6"}, "160,4,6.*one window"),
        ("bases", {"rotary_base": "500,100,700"}, "500,100,700.*one base"),
        ("llama", {"rotary_base": "500,10000"}, "--rotary-base 500,10000"),
        ("roformer lm", {"lm_head": "projection"}, "--lm-head projection"),
        ("roformer lm", {"decoder_normalize_before": True}, "--decoder-normalize-before True"),
        ("roformer lm", {"no_scale_embedding": False}, "--no-scale-embedding False"),
        ("roformer lm", {"layernorm_embedding": False}, "--layernorm-embedding False"),
        ("roformer lm", {"position_encoding": "t5", "rotary_pairing": None}, "encoding t5"),
        ("roformer lm", {"decoder_input_dim": 8, "decoder_output_dim": 8}, SIZE),
        ("marian", {"position_encoding": "sinusoidal"}, f"sinusoidal.*{REMOTE}"),
        ("marian", {"activation_fn": "tanh"}, f"learned.*MarianMTModel.*{REMOTE}"),
        ("marian", {"position_encoding": "none"}, f"none.*{REMOTE}"),
        ("bart", {"share_all_embeddings": False}, "--share-all-embeddings"),
        ("t5", {"share_all_embeddings": False}, "--share-all-embeddings"),
        ("t5", {"decoder_ffn_embed_dim": 40}, "--decoder-ffn-embed-dim 40"),
    ],
)
def test_classes(tmp_path, name, changed, words):
    path = checkpoint_of(tmp_path / "ours", name, **changed)
    said = refuses([], "export", EXPRESSED[name].target, path, tmp_path / "out")
    assert re.search(words, said), said


@pytest.mark.parametrize(
    "flags, words",
    [
        ("rotary --rotary-value", "--rotary-value True"),
        ("shaw", "shaw: the code of the folder has"),
        ("rotary --layer gated", "--layer gated"),
        ("rotary --decoder-output-dim 24", "--decoder-output-dim 24"),
        ("alibi,none", "have different biases"),
    ],
)
def test_translation_models_with_code(tmp_path, flags, words):
    pytest.importorskip("safetensors", reason="the weights are written with it")
    path = write_translation(tmp_path / "ours", "--position-encoding", *flags.split(), *SHARED)
    refuses([str(path), words], "export", "hf-remote-code", path, tmp_path / "out")


@pytest.mark.parametrize("target", ["hf-llama", "hf-roberta", "hf-bart"])
def test_models_of_another_kind(made, tmp_path, target):
    path = made("neox" if target != "hf-llama" else "roberta").path
    refuses([str(path), "posenc_"], "export", target, path, tmp_path / "out")


def test_former_names_are_exported_and_never_printed(tmp_path):
    """A checkpoint from before a renaming, and the flags that are printed after an import."""
    path = trained(tmp_path / "ours", norm="rms")
    state = read_checkpoint(path)
    state["cfg"]["model"].update(norm="unit", init_weights="usual")  # a command line refuses them
    torch.save(state, path)
    refuses(["--norm rms", "only supports layer"], "export", "hf-roformer", path, tmp_path / "out")
    fields = MASKED_LM.dataclass.__dataclass_fields__.items()
    former = [name for name, field in fields if field.metadata.get("role") == "former"]
    assert {"shaw_distance", "deberta_distance"} <= set(former)
    settings = {**dict.fromkeys(former, 3), "shaw_max_distance": 4, "own_setting": 1}
    assert flags_of(settings) == "--arch posenc_masked_lm --shaw-max-distance 4"


@pytest.fixture(scope="module")
def inexpressible(tmp_path_factory):
    """Models that no other toolkit has, one of each kind, as their formats differ."""
    folder = tmp_path_factory.mktemp("formats")
    flags = {"position_encoding": "rotary", "max_target_positions": 40, "decoder_layers": 1}
    lm = trained(folder / "lm", kind=CAUSAL, attention="elu", **flags)
    flags = ["--position-encoding", "sinusoidal", "--attention", "elu"]
    return {
        MASKED.name: trained(folder / "ours", attention="elu"),
        CAUSAL.name: lm,
        TRANSLATION.name: write_translation(folder / "translation", *flags),
    }


@pytest.mark.parametrize("name", [name for name, entry in FORMATS.items() if entry.exporter])
def test_every_export_refuses_what_it_cannot_express(inexpressible, tmp_path, name):
    package = "safetensors" if name.startswith("hf-") else name
    pytest.importorskip(package, reason="an extra")
    table = getattr(FORMATS[name].importer, "source", None)
    usual = TRANSLATION if name == "hf-remote-code" else MASKED
    model = inexpressible[(table.kind if table else usual).name]
    refuses([str(model), "--attention elu"], "export", name, model, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


FC1 = "encoder.sentence_encoder.layers.1.fc1.weight"
DAMAGED = {
    "no parameter": (lambda model, cfg: model.pop(FC1), [FC1, "Missing key"]),
    "other size": (
        lambda model, cfg: model.update({FC1: model[FC1][:4]}),
        [FC1, "[4, 16]", "[24, 16]"],
    ),
    "nan": (lambda model, cfg: model.update({FC1: model[FC1] * float("nan")}), [FC1, "NaN"]),
    "no tensor": (lambda model, cfg: model.update({FC1: "x"}), [FC1, "is a str"]),
    "heads": (
        lambda model, cfg: cfg.update(encoder_attention_heads=3),
        ["--encoder-attention-heads 3"],
    ),
    "layers": (lambda model, cfg: cfg.update(encoder_layers=3), ["layers.2", "Missing key"]),
    "half a head": (
        lambda model, cfg: model.update({"classification_heads.x.out_proj.bias": torch.ones(2)}),
        ["there is no 'classification_heads.x.out_proj.weight'"],
    ),
    "another model": (
        lambda model, cfg: cfg.update(_name="transformer"),
        ["not a masked language model"],
    ),
}


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """A checkpoint of ours that can be exported, with two heads."""
    folder = tmp_path_factory.mktemp("hostile") / "ours"
    return trained(folder, "one", "two", pooler_activation_fn="gelu")


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_checkpoints(tmp_path, out, ours, case):
    change, words = DAMAGED[case]
    path = tmp_path / "checkpoint.pt"
    shutil.copy(ours.parent / "dict.txt", tmp_path)
    content = load_file(ours)
    change(content["model"], content["cfg"]["model"])
    write_checkpoint(content, path)
    refuses(words if case == "heads" else [str(path), *words], "export", "hf-roformer", path, out)


def test_heads_and_dictionaries_that_the_checkpoint_has_not(tmp_path, out, ours):
    path, other = shutil.copy(ours, tmp_path / "checkpoint.pt"), tmp_path / "other.txt"
    export = ("export", "hf-roformer", path, out)
    state = load_file(path)
    state["cfg"]["task"]["data"] = str(tmp_path)  # which has no dictionary
    write_checkpoint(state, path)
    refuses([str(path), "dict.txt", "--vocab"], *export)
    words = "fairseq's special symbols make 6; give the right dictionary with --vocab"
    for content, said in {
        "a 1\n": ["7 token embeddings", words],
        "no count\n": ["other.txt: cannot be read as a fairseq dictionary"],
        "a 2\n[SEP] 1\n": ["other.txt", "'[SEP]'", "reserves"],
    }.items():
        other.write_text(content)
        refuses(said, *export, "--vocab", other, "--head", "lm")
    shutil.copy(ours.parent / "dict.txt", tmp_path)
    refuses(["several heads, one, two", "--head lm"], *export)
    refuses(["--head three", "one, two"], *export, "--head", "three")
    safetensors = pytest.importorskip("safetensors.torch", reason="the weights are written with it")
    convert(*export, "--head", "two")
    theirs = safetensors.load_file(out / "model.safetensors")["classifier.out_proj.weight"]
    assert torch.equal(theirs, state["model"]["classification_heads.two.out_proj.weight"])
