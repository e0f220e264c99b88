"""Damaged folders of every class of transformers: each entry and each tensor is read or refused."""

import json
import math

import pytest
import torch
from support.conversion import convert
from support.expressed import EXPRESSED, checkpoint_of
from support.foreign_models import SOURCES, table_of

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.reading import load_file
from fairseq_posenc.exchange import FORMATS
from fairseq_posenc.exchange.formats import importer_of

CLASSES = [name for name, entry in FORMATS.items() if hasattr(entry.importer, "source")]
#: The first row of each class that can be written.
FIRST = {row.target: name for name, row in reversed([*EXPRESSED.items()])}
#: Values of a wrong type, by the type of an entry.
WRONG = {
    bool: ["no", 3, []],
    int: ["3", 2.5, True, 0, [3]],
    float: ["0.5", -1.0, True, [], math.nan],
    str: [3, [], {}, "other"],
    list: [3, "other", [7], {}],
    dict: [3, [], "other"],
}
#: What is written for transformers alone; the last is read where layer_types is not there.
NOT_READ = ["torch_dtype", "initializer_range", "embd_pdrop", "global_attn_every_n_layers"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The folder of an export of a class, whose config.json has all entries that it can have."""
    pytest.importorskip("safetensors", reason="the weights are written with it")
    made = {}

    def get(target):
        if target not in made:
            folder = tmp_path_factory.mktemp("damaged")
            path = checkpoint_of(folder / "ours", FIRST[target])
            convert("export", target, path, folder / "theirs")
            made[target] = folder / "theirs"
        return made[target]

    return get


def outcome(target, folder, sizes=None):
    """What an import reads, or the message of its refusal, given the sizes of its parameters."""
    try:
        found = importer_of(target).read(str(folder), None)
    except UsageError as error:
        assert "\n" not in str(error)
        return str(error)
    for name, x in found.parameters.items() if sizes else ():
        if x.shape != sizes[name]:
            return found.origin[name]  # is refused in front of the check that fairseq can load it
    return found.kind.name, found.head, found.settings, found.parameters


def same(one, other):
    """Whether two outcomes are the same model."""
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    tensors, others = one[3], other[3]
    equal = all(name in others and torch.equal(x, others[name]) for name, x in tensors.items())
    return one[:3] == other[:3] and len(tensors) == len(others) and equal


def others_of(value):
    """Further values of the same type."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 2]
    return [value / 2 or 0.5] if isinstance(value, float) else []


@pytest.mark.parametrize("target", FIRST)
def test_every_entry_is_read_or_refused_by_name(exported, tmp_path, target):
    folder = exported(target)
    file = folder / "config.json"
    content = file.read_text()
    entries, usual, missed = json.loads(content), outcome(target, folder), []

    def changed(entry, *value):
        left = {name: value for name, value in entries.items() if name != entry}
        file.write_text(json.dumps({**left, **dict.fromkeys([entry] if value else [], *value)}))
        return outcome(target, folder)

    try:
        for entry, value in entries.items():
            number = entry.endswith("token_id")  # another number can be right, as can a list
            for wrong in WRONG[type(value)] if entry not in NOT_READ else ():
                found = changed(entry, wrong)
                named = isinstance(found, str) and entry.rstrip("s") in found
                if not named and not (number and wrong in (0, [3]) and wrong is not True):
                    missed.append((entry, wrong, found))
            for other in others_of(value) if entry not in NOT_READ and not number else ():
                if same(changed(entry, other), usual):
                    missed.append((entry, other, "no difference"))
            if not same(changed(entry, None), changed(entry)):
                missed.append((entry, None, "not as if absent"))
    finally:
        file.write_text(content)
    assert missed == []


@pytest.mark.parametrize("target", CLASSES)
def test_every_tensor_is_read_or_refused_by_name(tmp_path, target):
    folder = SOURCES[target](tmp_path / "source")
    file = folder / "pytorch_model.bin"
    tensors, missed = load_file(file), []
    usual = outcome(target, folder)
    sizes = {name: x.shape for name, x in usual[3].items()}
    for number, (name, x) in enumerate(tensors.items()):
        if any(part in name for part in ("layers.1.", "layer.1.", "h.1.", "block.1.")):
            continue
        damaged = (torch.full_like(x, math.nan), x.flatten()[:3], torch.cat((x, x)))
        damages = {("nan", "flat", "long")[number % 3]: damaged[number % 3]}
        if name not in table_of(target).computed:
            damages["missing"] = None
        for what, damaged in damages.items():
            rest = {key: value for key, value in tensors.items() if key != name}
            torch.save({**rest, **({} if damaged is None else {name: damaged})}, file)
            found = outcome(target, folder, sizes)
            if not isinstance(found, str) or name not in found:
                missed.append((name, what, found if isinstance(found, str) else "read"))
    torch.save({**tensors, "other.weight": torch.ones(2)}, file)
    assert "unexpected tensor other.weight" in outcome(target, folder)
    assert missed == []
