"""Damaged model folders: each changed entry, tensor or file has an effect or is refused."""

import json
import math
import shutil

import pytest
import torch
from support.conversion import CONFIG, SYMBOLS, convert, linear, refuses, roformer_weights
from support.conversion import write_folder as write
from support.expressed import FIRST_ROWS, table_of
from support.foreign_models import SOURCES

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.reading import load_file
from fairseq_posenc.exchange import FORMATS
from fairseq_posenc.exchange.formats import format_for

pytestmark = pytest.mark.refusals

EMBEDDING = "roformer.embeddings.word_embeddings.weight"
QUERY = "roformer.encoder.layer.0.attention.self.query.weight"
#: Functions that change the content of pytorch_model.bin, and words of the refusal.
WEIGHTS = {
    "nested": (lambda w: {"state_dict": w}, ["state_dict is a dict"]),
    "one tensor": (lambda w: w[QUERY], ["holds a Tensor"]),
    "numbered": (lambda w: {0: w[QUERY], **w}, ["0 is a Tensor"]),
    "empty": (lambda w: {}, ["has no tensor"]),
    "int8": (lambda w: {**w, QUERY: w[QUERY].to(torch.int8)}, [QUERY, "int8"]),
}
#: A file of the folder, its content, and a word of the refusal.
FILES = [
    ("config.json", b"\xff\xfe{}", "JSON"),
    ("config.json", b"[" * 100_000, "JSON"),
    ("config.json", b"", "JSON"),
    ("config.json", b"[1]", "JSON"),
    ("pytorch_model.bin", b"", "is empty"),
    ("pytorch_model.bin", b"weights", "not a PyTorch checkpoint"),
    ("model.safetensors", b"\x10\0\0\0\0\0\0\0{}", "safetensors"),
    ("vocab.txt", b"", "has no '[CLS]'"),
    ("vocab.txt", b"\xff\n", "line 1: not UTF-8"),
    ("tokenizer_config.json", b"[]", "JSON object"),
    ("tokenizer_config.json", b'{"cls_token": 5}', "cls_token is 5"),
    (
        "tokenizer_config.json",
        b'{"eos_token": "a", "extra_special_tokens": 3}',
        "extra_special_tokens is 3; it must be a list",
    ),
    ("tokenizer_config.json", b'{"sep_token": {"text": "x"}}', "sep_token is"),
    ("tokenizer.json", b"{}", "has no vocabulary"),  # in place of vocab.txt
    ("tokenizer.json", b'{"model": []}', "has no vocabulary"),
    ("tokenizer.json", b'{"model": {"vocab": [["a", 0]]}, "added_tokens": [5]}', "has no vocab"),
]


@pytest.mark.parametrize("case", WEIGHTS)
def test_weights(tmp_path, out, case):
    changed, words = WEIGHTS[case]
    source = write(tmp_path / "source", changed(roformer_weights()))
    refuses([str(source), *words], "import", "hf-roformer", source, out)


LABELS = [(["a", "b"], "is ['a', 'b']"), ({"one": "a"}, "number"), ({"1": "a"}, "has 2 outputs")]


@pytest.mark.parametrize("labels, said", LABELS)
def test_names_of_classes(tmp_path, out, labels, said):
    body = {name: x for name, x in roformer_weights().items() if not name.startswith("cls.")}
    head = {**linear("classifier.dense", 16, 16), **linear("classifier.out_proj", 2, 16)}
    config = {"architectures": ["RoFormerForSequenceClassification"], "id2label": labels}
    source = write(tmp_path / "source", {**body, **head}, **config)
    refuses(["config.json", "id2label", said], "import", "hf-roformer", source, out)


@pytest.mark.parametrize("name, content, word", FILES, ids=lambda value: str(value)[:30])
def test_files(tmp_path, out, name, content, word):
    if "safetensors" in name:
        pytest.importorskip("safetensors", reason="reading safetensors needs the package")
    source = write(tmp_path / "source")
    if name == "tokenizer.json":
        (source / "vocab.txt").unlink()
    (source / name).write_bytes(content)
    refuses([name, word], "import", "hf-roformer", source, out)


def test_mixed_precision_is_no_contradiction(tmp_path, out):
    """A tied output weight and the embedding may be stored with different dtypes."""
    weights = roformer_weights()
    table = torch.randint(-8, 8, (len(SYMBOLS), 16)).float() / 4  # exact in every format
    weights[EMBEDDING] = table.half()
    weights["cls.predictions.decoder.weight"] = table.bfloat16()
    weights[QUERY] = weights[QUERY].bfloat16()
    convert("import", "hf-roformer", write(tmp_path / "source", weights), out)
    model = load_file(out / "checkpoint.pt")["model"]
    assert {value.dtype for value in model.values()} == {torch.float32}
    assert CONFIG["vocab_size"] == len(model["encoder.lm_head.weight"])


CLASSES = [name for name, entry in FORMATS.items() if hasattr(entry.importer, "source")]
#: Wrong values for an entry, by the type of the entry.
WRONG = {
    bool: ["no", 3, []],
    int: ["3", 2.5, True, 0, [3]],
    float: ["0.5", -1.0, True, [], math.nan],
    str: [3, [], {}, "other"],
    list: [3, "other", [7], {}],
    dict: [3, [], "other"],
}
#: Entries that only transformers reads; we read the last one only if layer_types is missing.
NOT_READ = ["torch_dtype", "initializer_range", "embd_pdrop", "global_attn_every_n_layers"]


def outcome(target, folder, sizes=None):
    """The model that an import reads, its error message, or the name of a tensor of wrong size."""
    try:
        found = format_for("import", target).read(str(folder), None)
    except UsageError as error:
        assert "\n" not in str(error)
        return str(error)
    for name, x in found.parameters.items() if sizes else ():
        if x.shape != sizes[name]:
            return found.origin[name]  # an import would refuse this later
    return found.kind.name, found.head, found.settings, found.parameters


def same(one, other):
    """Whether two outcomes are the same model or the same message."""
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    tensors, others = one[3], other[3]
    equal = all(name in others and torch.equal(x, others[name]) for name, x in tensors.items())
    return one[:3] == other[:3] and len(tensors) == len(others) and equal


def changed(target, folder, entries):
    """The outcome of an import with *entries* as config.json."""
    (folder / "config.json").write_text(json.dumps(entries))
    return outcome(target, folder)


def others_of(value):
    """A list with a different valid value for an entry; empty if the value is a text or a list."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 2]
    return [value / 2 or 0.5] if isinstance(value, float) else []


@pytest.mark.parametrize("target", FIRST_ROWS)
def test_every_entry_is_read_or_refused_by_name(made, tmp_path, target):
    folder = shutil.copytree(made(FIRST_ROWS[target]).theirs, tmp_path / "copy")
    entries = json.loads((folder / "config.json").read_text())
    usual, missed = outcome(target, folder), []
    for entry, value in entries.items():
        number = entry.endswith("token_id")  # 0 and [3] may be correct
        for wrong in WRONG[type(value)] if entry not in NOT_READ else ():
            found = changed(target, folder, {**entries, entry: wrong})
            named = isinstance(found, str) and entry.rstrip("s") in found
            if not named and not (number and wrong in (0, [3]) and wrong is not True):
                missed.append((entry, wrong, found))
        for other in others_of(value) if entry not in NOT_READ and not number else ():
            if same(changed(target, folder, {**entries, entry: other}), usual):
                missed.append((entry, other, "no difference"))
        left = {name: value for name, value in entries.items() if name != entry}
        if not same(changed(target, folder, {**left, entry: None}), changed(target, folder, left)):
            missed.append((entry, None, "not as if absent"))
    assert missed == []


@pytest.mark.parametrize("target", FIRST_ROWS)
def test_an_entry_that_is_left_out_means_what_it_means_to_transformers(
    made, transformers, tmp_path, target
):
    """Our import must assume the value that transformers fills in for a missing entry."""
    found, missed = made(FIRST_ROWS[target]), []
    if not found.known:
        pytest.skip("this version of transformers has no such class")
    folder = shutil.copytree(found.theirs, tmp_path / "copy")
    entries = json.loads((folder / "config.json").read_text())
    kind = getattr(transformers, entries["architectures"][0]).config_class
    for entry in [name for name in entries if not name.endswith("_token_id")]:
        left = {name: value for name, value in entries.items() if name != entry}
        try:
            whole = kind.from_dict(left).to_dict()
        except Exception:  # transformers cannot use these sizes
            continue
        ours = changed(target, folder, left)
        theirs = changed(target, folder, {**whole, "architectures": left.get("architectures")})
        refused = isinstance(ours, str) or isinstance(theirs, str)  # e.g. if sizes do not fit
        if not refused and not same(ours, theirs):
            missed.append((entry, dict(ours[2].items() - theirs[2].items())))
    assert missed == []


@pytest.mark.parametrize("target", CLASSES)
def test_every_tensor_is_read_or_refused_by_name(tmp_path, target):
    safetensors = pytest.importorskip("safetensors.torch", reason="the tensors are saved with it")
    folder = SOURCES[target](tmp_path / "source")
    tensors, missed = load_file(folder / "pytorch_model.bin"), []
    file = folder / "model.safetensors"  # read in place of the other
    safetensors.save_file(tensors, file)
    usual = outcome(target, folder)
    sizes = {name: x.shape for name, x in usual[3].items()}
    for number, (name, x) in enumerate(tensors.items()):
        if any(part in name for part in ("layers.1.", "layer.1.", "h.1.", "block.1.")):
            continue
        damaged = (torch.full_like(x, math.nan), x.flatten()[:3], torch.cat((x, x)))[number % 3]
        for damage in [{name: damaged}] + [{}] * (name not in table_of(target).computed):
            rest = {key: value for key, value in tensors.items() if key != name}
            safetensors.save_file({**rest, **damage}, file)
            found = outcome(target, folder, sizes)
            if not isinstance(found, str) or name not in found:
                what = "damaged" if damage else "missing"
                missed.append((name, what, found if isinstance(found, str) else "read"))
    safetensors.save_file({**tensors, "other.weight": torch.ones(2)}, file)
    assert "unexpected tensor other.weight" in outcome(target, folder)
    assert missed == []
