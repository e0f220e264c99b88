"""Damaged and contradictory inputs of import and export: each is refused in one line."""

import json
import shutil

import pytest
import torch
from support.conversion import (
    CONFIG,
    SYMBOLS,
    convert,
    linear,
    refuses,
    roformer_weights,
    write_folder,
)
from support.foreign_models import trained

from fairseq_posenc.checkpoints.reading import load_file, write_checkpoint

EMBEDDING = "roformer.embeddings.word_embeddings.weight"
QUERY = "roformer.encoder.layer.0.attention.self.query.weight"

# what replaces the content of pytorch_model.bin, by a function of the right one; what is said
WEIGHTS = {
    "nested": (lambda w: {"state_dict": w}, ["state_dict is a dict"]),
    "beside others": (lambda w: {**w, "epoch": 3}, ["epoch is a int"]),
    "a list": (lambda w: list(w.values()), ["holds a list"]),
    "one tensor": (lambda w: w[QUERY], ["holds a Tensor"]),
    "numbered": (lambda w: {0: w[QUERY], **w}, ["0 is a Tensor"]),
    "empty": (lambda w: {}, ["has no tensor"]),
    "infinite": (lambda w: {**w, QUERY: w[QUERY] / 0}, [QUERY, "infinity"]),
    "int8": (lambda w: {**w, QUERY: w[QUERY].to(torch.int8)}, [QUERY, "int8"]),
    "complex": (lambda w: {**w, QUERY: w[QUERY] + 0j}, [QUERY, "real"]),
    "sparse": (lambda w: {**w, QUERY: w[QUERY].to_sparse()}, [QUERY, "ordinary"]),
}
# content of a file of the folder
FILES = [
    ("config.json", b"\xff\xfe{}", ["JSON"]),
    ("config.json", b"[" * 100_000, ["JSON"]),
    ("config.json", b"", ["JSON"]),
    ("config.json", b"[1]", ["JSON"]),
    ("config.json", b"{", ["JSON"]),
    ("pytorch_model.bin", b"", ["is empty"]),
    ("pytorch_model.bin", b"weights", ["not a PyTorch checkpoint"]),
    ("model.safetensors", b"", ["safetensors"]),
    ("model.safetensors", b"\x10\0\0\0\0\0\0\0{}", ["safetensors"]),
    ("vocab.txt", b"", ["has no '[CLS]'"]),
    ("vocab.txt", b"\xff\n", ["line 1: not UTF-8"]),
    ("vocab.txt", b"[PAD]\n[PAD]\n", ["'[PAD]' occurs twice"]),
    ("tokenizer_config.json", b"[]", ["JSON object"]),
    ("tokenizer_config.json", b'{"cls_token": 5}', ["cls_token is 5"]),
    ("tokenizer_config.json", b'{"sep_token": {"text": "x"}}', ["sep_token is"]),
]


@pytest.mark.parametrize("case", WEIGHTS)
def test_weights(tmp_path, out, case):
    changed, words = WEIGHTS[case]
    source = write_folder(tmp_path / "source", changed(roformer_weights()))
    refuses([str(source), *words], "import", "hf-roformer", source, out)


@pytest.mark.parametrize("labels, said", [(["a", "b"], "is ['a', 'b']"), ({"one": "a"}, "number")])
def test_names_of_classes(tmp_path, out, labels, said):
    body = {name: x for name, x in roformer_weights().items() if not name.startswith("cls.")}
    head = {**linear("classifier.dense", 16, 16), **linear("classifier.out_proj", 2, 16)}
    config = {"architectures": ["RoFormerForSequenceClassification"], "id2label": labels}
    source = write_folder(tmp_path / "source", {**body, **head}, **config)
    refuses(["config.json", "id2label", said], "import", "hf-roformer", source, out)


@pytest.mark.parametrize("name, content, words", FILES, ids=lambda value: str(value)[:30])
def test_files(tmp_path, out, name, content, words):
    if "safetensors" in name:
        pytest.importorskip("safetensors", reason="reading safetensors needs the package")
    source = write_folder(tmp_path / "source")
    (source / name).write_bytes(content)
    refuses([name, *words], "import", "hf-roformer", source, out)


@pytest.mark.parametrize(
    "content", [{"model": []}, {"model": {"vocab": [["a", 0]]}, "added_tokens": [5]}, {"model": 1}]
)
def test_tokenizer_json(tmp_path, out, content):
    source = write_folder(tmp_path / "source")
    (source / "vocab.txt").unlink()
    (source / "tokenizer.json").write_text(json.dumps(content))
    refuses(["tokenizer.json", "has no vocabulary"], "import", "hf-roformer", source, out)


FC1 = "encoder.sentence_encoder.layers.1.fc1.weight"
EXPORTS = {
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
    """A checkpoint of ours that can be exported."""
    return trained(tmp_path_factory.mktemp("hostile") / "ours", pooler_activation_fn="gelu")


@pytest.mark.parametrize("case", EXPORTS)
def test_export(tmp_path, out, ours, case):
    change, words = EXPORTS[case]
    path = tmp_path / "checkpoint.pt"
    shutil.copy(ours.parent / "dict.txt", tmp_path)
    content = load_file(ours)
    change(content["model"], content["cfg"]["model"])
    write_checkpoint(content, path)
    refuses(words if case == "heads" else [str(path), *words], "export", "hf-roformer", path, out)


def test_mixed_precision_is_no_contradiction(tmp_path):
    """A tied output weight may be stored in another format than the embedding."""
    weights = roformer_weights()
    table = torch.randint(-8, 8, (len(SYMBOLS), 16)).float() / 4  # exact in every format
    weights[EMBEDDING] = table.half()
    weights["cls.predictions.decoder.weight"] = table.bfloat16()
    weights[QUERY] = weights[QUERY].bfloat16()
    convert("import", "hf-roformer", write_folder(tmp_path / "source", weights), tmp_path / "out")
    model = load_file(tmp_path / "out" / "checkpoint.pt")["model"]
    assert {value.dtype for value in model.values()} == {torch.float32}
    assert CONFIG["vocab_size"] == len(model["encoder.lm_head.weight"])
