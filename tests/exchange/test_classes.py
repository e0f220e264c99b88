"""Every class of transformers: what it holds of a model of ours, and what it refuses.

Rows and classes come from tables: a further class needs a row in support/expressed.py.
"""

import contextlib
import importlib
import io
import json
import shutil
import sys
from argparse import Namespace
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Optional

import pytest
import torch
from support.conversion import convert, read_symbols
from support.expressed import (
    EXPRESSED,
    HAS_PLACE,
    LONGEST,
    RATES,
    SCALED,
    SIZES,
    WORDS,
    checkpoint_of,
)
from support.foreign_models import SPECIAL, table_of

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.checkpoints.reading import read_checkpoint
from fairseq_posenc.configuration.effect import has_effect
from fairseq_posenc.configuration.fields import computing_fields, defaults_of
from fairseq_posenc.exchange import FORMATS, native
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.formats import Wanted, refuse_inexpressible
from fairseq_posenc.exchange.huggingface.convert import ClassExporter
from fairseq_posenc.exchange.huggingface.entries import entries_of, expressible, settings_of
from fairseq_posenc.models.kinds import CAUSAL, MASKED, PAD, TRANSLATION, kind_of

#: The first row of each class.
FIRST = {row.target: name for name, row in reversed([*EXPRESSED.items()])}
AUTO = {CAUSAL.name: "CausalLM", MASKED.name: "MaskedLM", TRANSLATION.name: "Seq2SeqLM"}
TEXTS = ["w1 w2 w39 elsewhere w3", "w7", " ".join(WORDS)]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Each row's checkpoint and the folder of its export, compared where transformers is there."""
    pytest.importorskip("safetensors", reason="the weights are written with it")
    found = {}

    def get(name):
        if name not in found:
            folder, row = tmp_path_factory.mktemp("classes"), EXPRESSED[name]
            path = checkpoint_of(folder / "ours", name)
            verify = ["--verify"] if has_class(table_of(row.target)) else []
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                convert("export", row.target, path, folder / "theirs", *verify)
            (architecture,) = json.loads((folder / "theirs" / "config.json").read_text())[
                "architectures"
            ]
            if verify:
                line = f"largest difference from {architecture} of transformers: "
                assert float(printed.getvalue().split(line)[1].split()[0]) < 3e-5
            found[name] = SimpleNamespace(row=row, path=path, theirs=folder / "theirs")
        return found[name]

    return get


def has_class(table):
    """Whether a class is in transformers as it is installed, if it is."""
    if not find_spec("transformers"):
        return False
    return hasattr(importlib.import_module("transformers"), next(iter(table.architectures)))


def settings_in(path):
    return read_checkpoint(str(path))["cfg"]["model"]


def load(path):
    kind = kind_of(settings_in(path)["_name"])
    return native.load(str(path), str(path.parent / "dict.txt"), kind)


def logits_of(model, row, tokens):
    """Our logits, of the source as its own translation."""
    if row.kind is TRANSLATION:
        return model(tokens, tokens.ne(PAD).sum(1), started(tokens))[0]
    head = {"classification_head_name": row.heads[0]} if row.heads else {}
    return model(tokens, **head)[0]


def started(tokens):
    """The same behind </s>."""
    return torch.cat((torch.full_like(tokens[:, :1], 2), tokens[:, :-1]), dim=1)


def numbered(row, symbols):
    """TEXTS as batches of fairseq have them, (3, T), padded on the right."""
    first, last = {CAUSAL.name: ([2], []), MASKED.name: ([0], [2])}.get(row.kind.name, ([], [2]))
    lines = [
        [*first, *(symbols.index(s) if s in symbols else 3 for s in text.split()), *last]
        for text in TEXTS
    ]
    longest = max(map(len, lines))
    return torch.tensor([[*line, *[PAD] * (longest - len(line))] for line in lines])


@pytest.mark.parametrize("name", [*FIRST.values(), "sentences", "segments", "roformer lm"])
@torch.no_grad()
def test_text_and_logits_are_those_of_fairseq_also_when_saved_again(
    name, made, transformers, tmp_path
):
    found = made(name)
    row, kind, again = found.row, found.row.kind, tmp_path / "again"
    if not has_class(table_of(row.target)):
        pytest.skip("this version of transformers has no such class")
    symbols = native.read_dictionary(str(found.path.parent / "dict.txt"), kind.adds_mask).symbols
    tokens = numbered(row, symbols)
    real = tokens.ne(PAD)
    ours = load(found.path)
    auto = "SequenceClassification" if row.heads else AUTO[kind.name]
    model = getattr(transformers, f"AutoModelFor{auto}").from_pretrained(found.theirs).eval()
    model.save_pretrained(again)
    if row.target == "hf-roformer":  # its tokenizer splits text by another package
        theirs = read_symbols(found.theirs)
        order = torch.tensor([theirs.index(SPECIAL.get(symbol, symbol)) for symbol in symbols])
        batch = {"input_ids": order[tokens], "attention_mask": real.long()}
        for file in ("vocab.txt", "tokenizer_config.json"):
            shutil.copy(found.theirs / file, again)
    else:
        tokenizer = transformers.AutoTokenizer.from_pretrained(found.theirs, padding_side="right")
        order = torch.arange(len(symbols))
        batch = tokenizer(TEXTS, return_tensors="pt", padding=True)
        if kind is not MASKED:
            batch.pop("token_type_ids", None)
        assert torch.equal(batch["input_ids"], tokens)
        assert torch.equal(batch["attention_mask"].bool(), real)
        assert tokenizer.model_max_length == LONGEST
        long = tokenizer(["w1 " * 300], truncation=True)["input_ids"]
        assert len(long[0]) == LONGEST
        ids = tokenizer(f"x{tokenizer.pad_token}", add_special_tokens=False)["input_ids"]
        assert PAD not in ids  # the name of a special symbol in a text is text
        tokenizer.save_pretrained(again)
    if kind is TRANSLATION:
        batch["decoder_input_ids"] = started(tokens)
    want, have = logits_of(ours, row, tokens), model(**batch).logits
    if not row.heads:
        want, have = want[real], have[..., order][real]
    torch.testing.assert_close(have, want, atol=1e-5, rtol=1e-5)
    convert("import", row.target, again, tmp_path / "back")
    back = tmp_path / "back" / "checkpoint.pt"
    have = logits_of(load(back), row, tokens)
    torch.testing.assert_close(have if row.heads else have[real], want, atol=1e-5, rtol=1e-5)
    settings = settings_in(back)
    assert {rate: settings[rate] for rate in HAS_PLACE[row.target]}.items() <= RATES.items()


@pytest.mark.parametrize("name", EXPRESSED)
@torch.no_grad()
def test_a_folder_returns_and_is_written_again_byte_for_byte(name, made, tmp_path, monkeypatch):
    """Without transformers."""
    found = made(name)
    monkeypatch.setitem(sys.modules, "transformers", None)
    row, back = found.row, tmp_path / "back" / "checkpoint.pt"
    convert("import", row.target, found.theirs, tmp_path / "back")
    tokens = torch.randint(4, len(WORDS), (2, 50))
    want, have = (logits_of(load(path), row, tokens) for path in (found.path, back))
    torch.testing.assert_close(have, want, atol=1e-5, rtol=1e-5)
    settings = settings_in(back)
    assert {rate: settings[rate] for rate in HAS_PLACE[row.target]}.items() <= RATES.items()
    convert("export", row.target, back, tmp_path / "again")
    files = {file.name: file.read_bytes() for file in found.theirs.iterdir()}
    del files["README.md"]  # has the flags, and the name of the folder
    again = {file.name: file.read_bytes() for file in (tmp_path / "again").iterdir()}
    assert {name for name, content in files.items() if again.get(name) != content} == set()


#: An entry that an export takes from the tensors.
ROWS = {"max_position_embeddings": LONGEST + 2}


def test_every_class_that_is_written_has_a_row():
    written = {name for name, each in FORMATS.items() if isinstance(each.exporter, ClassExporter)}
    assert set(FIRST) == set(HAS_PLACE) == written


#: Settings that are read from the tensors, or follow from others.
FROM_TENSORS = {
    *("share_decoder_input_output_embed", "share_all_embeddings", "merge_src_tgt_embed"),
    *("untie_weights_roberta", "no_scale_embedding", "no_token_positional_embeddings"),
    "rotary_pairing",
    *("decoder_learned_pos", "encoder_learned_pos", "num_positions", "segments", "no_bias"),
    *("rotary_scaling_factor", "rotary_original_length"),  # matter with --rotary-scaling alone
}
#: Settings of heads, and of the output of a language model, which an architecture has or has not.
OF_HEADS = {"pooler", "pooler_norm", "pooler_activation_fn", "spectral_norm_classification_head"}
OF_OUTPUT = {"lm_head", "untie_weights_roberta"}
#: Values that return as others that compute the same: a larger base, a vector in the positions, and
#: geglu, which is glu with GELU.
OTHERWISE = [("rotary_scaling", "ntk"), ("num_segments", 1), ("feed_forward", "glu")]


def unused_in(architecture):
    """The settings without a part in an architecture."""
    if "Classification" not in architecture:
        return OF_HEADS
    plain = architecture in ("RobertaForTokenClassification", "RoFormerForTokenClassification")
    return OF_OUTPUT | OF_HEADS if plain else OF_OUTPUT


def other_values(field, value):
    """Values of a setting other than *value*."""
    choices = field.metadata.get("choices")
    if choices is not None:
        return [choice for choice in choices if choice != value]
    if value is None:
        return [{Optional[int]: 2, Optional[str]: "other"}.get(field.type, True)]
    if isinstance(value, bool):
        return [not value]
    return [f"other {value}"] if isinstance(value, str) else [value * 2 or 1]


@pytest.mark.parametrize("target", FIRST)
def test_every_setting_is_expressed_or_refused_by_name(target):
    """In every architecture of a class, also settings that are registered later."""
    table = table_of(target)
    family, sizes = table.kind.family, SIZES[table.kind.name]
    given = EXPRESSED[FIRST[target]].settings
    usual = {**defaults_of(family.dataclass), **SCALED, **sizes, **given}
    missed = []
    for architecture, built in table.architectures.items():
        usual.update({name: values[0] for name, values in built.values.items()})

        def written(settings, architecture=architecture, built=built):
            found = expressible(table, architecture, built, settings)
            refuse_inexpressible("checkpoint.pt", family, settings, found)
            return entries_of(table, built, settings, "checkpoint.pt")

        written(usual)
        for field in computing_fields(family.dataclass, Namespace()):
            for value in other_values(field, usual[field.name]):
                settings = {**usual, field.name: value}
                unused = field.name in unused_in(architecture)
                if unused or not has_effect(field.name, settings, family.dataclass):
                    continue
                try:
                    config = Config("config.json", {**ROWS, **written(settings)})
                except UsageError as error:
                    if flag_of(field.name) not in str(error) and field.name not in sizes:
                        missed.append((architecture, field.name, value, str(error)))
                    continue
                back = {**usual, **settings_of(table, built, config)}
                same = field.name in FROM_TENSORS or (field.name, value) in OTHERWISE
                if not same and back[field.name] != value:
                    missed.append((architecture, field.name, value, back[field.name]))
    assert missed == []


def test_a_head_without_an_architecture_in_the_class_is_refused(made, tmp_path):
    found = made("sentences")
    table = table_of(found.row.target)
    bare = {name: built for name, built in table.architectures.items() if not built.heads}
    wanted = Wanted(str(found.path), str(tmp_path / "out"))
    with pytest.raises(UsageError, match=f"--head .*: {table.name} has nothing like it"):
        ClassExporter(table._replace(architectures=bare)).export(wanted)
    assert list(tmp_path.iterdir()) == []
