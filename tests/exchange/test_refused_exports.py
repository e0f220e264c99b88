"""Refusals of exports name the flag, the parameter or the file.

test_classes.py tests each single setting for every class.  This file tests settings that depend on
others, former names, kinds of models, damaged checkpoints, heads and dictionaries.
"""

import re
import shutil

import pytest
import torch
from support.conversion import convert, refuses
from support.expressed import EXPRESSED, checkpoint_of, table_of, trained
from support.model_folders import write_translation

from fairseq_posenc.checkpoints.reading import load_file, read_checkpoint, write_checkpoint
from fairseq_posenc.exchange import FORMATS
from fairseq_posenc.exchange.transfer import flags_of
from fairseq_posenc.models.kinds import CAUSAL, KINDS, MASKED, TRANSLATION
from fairseq_posenc.models.masked_lm import MASKED_LM

pytestmark = pytest.mark.refusals

CODE, SIZE = "hf-remote-code", "--decoder-output-dim 8"
#: Settings of language models that the RoFormer class cannot hold.
OF_LM = {"lm_head": "projection", "no_scale_embedding": False, "layernorm_embedding": False}


@pytest.mark.parametrize(
    "name, changed, words",
    [
        ("bases", {"local_window": "160,4,6"}, "160,4,6.*one window"),
        ("bases", {"rotary_base": "500,100,700"}, "500,100,700.*one base"),
        ("llama", {"rotary_base": "500,10000"}, "--rotary-base 500,10000"),
        ("roformer lm", OF_LM, "--layer.*-emb.* False, --no-sc.* False, --lm-head projection"),
        ("roformer lm", {"decoder_normalize_before": True}, "--decoder-normalize-before True"),
        ("roformer lm", {"position_encoding": "t5", "rotary_pairing": None}, "encoding t5"),
        ("roformer lm", {"decoder_input_dim": 8, "decoder_output_dim": 8}, SIZE),
        ("marian", {"position_encoding": "sinusoidal"}, f"sinusoidal.*use export {CODE}"),
        ("marian", {"activation_fn": "tanh"}, f"learned.*MarianMTModel.*use export {CODE}"),
        ("bart", {"share_all_embeddings": False}, "--share-all-embeddings"),
        ("t5", {"decoder_ffn_embed_dim": 40}, "--decoder-ffn-embed-dim 40"),
        (CODE, {"position_encoding": "rotary", "rotary_value": True}, "--rotary-value True"),
        (CODE, {"position_encoding": "shaw"}, "shaw: the code in the exported folder has"),
        (CODE, {"position_encoding": "rotary", "layer": "gated"}, "--layer gated"),
        (CODE, {"decoder_output_dim": 24}, "--decoder-output-dim 24"),
        (CODE, {"position_encoding": "alibi,none"}, "have different biases"),
    ],
)
def test_settings_that_depend_on_others(tmp_path, name, changed, words):
    row, target = ("marian", name) if name == CODE else (name, EXPRESSED[name].target)
    path = checkpoint_of(tmp_path / "ours", row, **changed)
    said = refuses([str(path)] * (name == CODE), "export", target, path, tmp_path / "out")
    assert re.search(words, said), said


def test_former_names_are_exported_and_never_printed(tmp_path):
    """Exports read old names in checkpoints; printed flags have only the new names."""
    path = trained(tmp_path / "ours", norm="rms")
    state = read_checkpoint(path)
    state["cfg"]["model"].update(norm="unit", init_weights="usual")  # only in old checkpoints
    torch.save(state, path)
    refuses(["--norm rms", "only supports layer"], "export", "hf-roformer", path, tmp_path / "out")
    fields = MASKED_LM.dataclass.__dataclass_fields__.items()
    former = [name for name, field in fields if field.metadata.get("role") == "former"]
    assert {"shaw_distance", "deberta_distance"} <= set(former)
    settings = {**dict.fromkeys(former, 3), "shaw_max_distance": 4, "own_setting": 1}
    assert flags_of(settings) == "--arch posenc_masked_lm --shaw-max-distance 4"


@pytest.fixture(scope="module")
def inexpressible(tmp_path_factory):
    """A checkpoint of each kind of model, with linear attention, which no format can hold."""
    folder = tmp_path_factory.mktemp("formats")
    flags = {"position_encoding": "rotary", "max_target_positions": 40, "decoder_layers": 1}
    lm = trained(folder / "lm", kind=CAUSAL, attention="elu", **flags)
    flags = ["--position-encoding", "sinusoidal", "--attention", "elu"]
    translation = write_translation(folder / "translation", *flags)
    return list(zip(KINDS, (translation, lm, trained(folder / "ours", attention="elu"))))


#: The kinds of models that formats with no conversion table, or with two, accept.
TAKEN = {
    **{CODE: (TRANSLATION,), "onnx": (MASKED,), "ctranslate2": KINDS},
    "hf-roformer": (MASKED, CAUSAL),
}


@pytest.mark.parametrize("name", [name for name, entry in FORMATS.items() if entry.exporter])
def test_every_export_refuses_what_it_cannot_express(inexpressible, tmp_path, name):
    """The message names the layer's flag or, for the wrong kind of model, its architecture."""
    pytest.importorskip("safetensors" if name.startswith("hf-") else name, reason="it is needed")
    for kind, model in inexpressible:
        words = f"--arch {kind.arch}$|has --arch {kind.arch};|is a {kind.name}; .* takes masked"
        if kind in (TAKEN.get(name) or [table_of(name).kind]):
            words = "--attention elu"
        elif kind is TRANSLATION:
            words = "is not a masked language model"
        said = refuses([str(model)], "export", name, model, tmp_path / "out")
        assert re.search(words, said), said
    assert list(tmp_path.iterdir()) == []


FC1 = "encoder.sentence_encoder.layers.1.fc1.weight"
HEAD = "classification_heads.x.out_proj."
#: A parameter, a function that replaces it, and a word of the refusal.
DAMAGED = [
    (FC1, lambda x: None, "Missing key"),
    (FC1, lambda x: x[:4], "[4, 16]"),
    (FC1, lambda x: x * float("nan"), "NaN"),
    (f"{HEAD}bias", lambda x: torch.ones(2), f"there is no '{HEAD}weight'"),
]


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """Our checkpoint of a model that can be exported, with two classification heads."""
    folder = tmp_path_factory.mktemp("hostile") / "ours"
    return trained(folder, "one", "two", pooler_activation_fn="gelu")


@pytest.mark.parametrize("name, change, word", DAMAGED)
def test_damaged_checkpoints(tmp_path, out, ours, name, change, word):
    path = tmp_path / "checkpoint.pt"
    shutil.copy(ours.parent / "dict.txt", tmp_path)
    content = load_file(ours)
    model = {**content["model"], name: change(content["model"].get(name))}
    content["model"] = {name: x for name, x in model.items() if x is not None}
    write_checkpoint(content, path)
    refuses([str(path), name.rpartition(".")[0], word], "export", "hf-roformer", path, out)


def test_heads_that_do_not_divide_the_channels(tmp_path, out, ours):
    path = tmp_path / "checkpoint.pt"
    content = load_file(ours)
    content["cfg"]["model"]["encoder_attention_heads"] = 3
    write_checkpoint(content, path)
    refuses(["--encoder-attention-heads 3"], "export", "hf-roformer", path, out)


def test_heads_and_dictionaries_that_the_checkpoint_has_not(tmp_path, out, ours):
    path, other = shutil.copy(ours, tmp_path / "checkpoint.pt"), tmp_path / "other.txt"
    export = ("export", "hf-roformer", path, out)
    state = load_file(path)
    state["cfg"]["task"]["data"] = str(tmp_path)  # has no dictionary
    write_checkpoint(state, path)
    refuses([str(path), "dict.txt", "--vocab"], *export)
    words = "6 symbols, including fairseq's special ones; give the correct dictionary with --vocab"
    for content, said in {
        "a 1\n": ["7 token embeddings", words],
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
