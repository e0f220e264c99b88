"""Every class of transformers: which settings of our models it can hold, and which it refuses.

The tests run for all rows of support/expressed.py; a further class needs a row.
"""

import sys
from argparse import Namespace
from typing import Optional

import pytest
import torch
from support.conversion import convert
from support.expressed import (
    EXPRESSED,
    FIRST_ROWS,
    HAS_PLACE,
    LONGEST,
    RATES,
    SCALED,
    SIZES,
    WORDS,
    load,
    logits_of,
    table_of,
)

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.checkpoints.reading import read_checkpoint
from fairseq_posenc.configuration.effect import has_effect
from fairseq_posenc.configuration.fields import computing_fields, defaults_of
from fairseq_posenc.exchange import FORMATS
from fairseq_posenc.exchange.formats import Wanted, refuse_inexpressible
from fairseq_posenc.exchange.huggingface.convert import ClassExporter
from fairseq_posenc.exchange.huggingface.entries import entries_of, expressible, settings_of
from fairseq_posenc.exchange.reader import Config

pytestmark = pytest.mark.properties


@pytest.mark.parametrize("name", EXPRESSED)
@torch.no_grad()
def test_a_folder_returns_and_is_written_again_byte_for_byte(name, made, tmp_path, monkeypatch):
    """Neither import nor export needs transformers."""
    found = made(name)
    monkeypatch.setitem(sys.modules, "transformers", None)
    row, back = found.row, tmp_path / "back" / "checkpoint.pt"
    convert("import", row.target, found.theirs, tmp_path / "back")
    tokens = torch.randint(4, len(WORDS), (2, 50))
    want, have = (logits_of(load(path), row, tokens) for path in (found.path, back))
    torch.testing.assert_close(have, want, atol=1e-5, rtol=1e-5)
    settings = read_checkpoint(str(back))["cfg"]["model"]
    assert {rate: settings[rate] for rate in HAS_PLACE[row.target]}.items() <= RATES.items()
    convert("export", row.target, back, tmp_path / "again")
    files = {file.name: file.read_bytes() for file in found.theirs.iterdir()}
    del files["README.md"]  # has flags and the folder's name
    again = {file.name: file.read_bytes() for file in (tmp_path / "again").iterdir()}
    assert {name for name, content in files.items() if again.get(name) != content} == set()


def test_every_class_that_is_written_has_a_row():
    written = {name for name, each in FORMATS.items() if isinstance(each.exporter, ClassExporter)}
    assert set(FIRST_ROWS) == set(HAS_PLACE) == written


#: Settings that are read from the tensors, or follow from other settings.
FROM_TENSORS = {
    *("share_decoder_input_output_embed", "share_all_embeddings", "merge_src_tgt_embed"),
    *("untie_weights_roberta", "no_scale_embedding", "no_token_positional_embeddings"),
    "rotary_pairing",
    *("decoder_learned_pos", "encoder_learned_pos", "num_positions", "segments", "no_bias"),
    *("rotary_scaling_factor", "rotary_original_length"),  # matter only with --rotary-scaling
}
#: Settings of classification heads, and of the output layer; an architecture may lack either.
OF_HEADS = {"pooler", "pooler_norm", "pooler_activation_fn", "spectral_norm_classification_head"}
OF_OUTPUT = {"lm_head", "untie_weights_roberta"}
#: Values that return as equivalent values: ntk as a larger base, one segment as part of the
#: positions, and glu with GELU as geglu.
OTHERWISE = [("rotary_scaling", "ntk"), ("num_segments", 1), ("feed_forward", "glu")]


def unused_in(architecture):
    """The settings that have no effect in an architecture."""
    if "Classification" not in architecture:
        return OF_HEADS
    plain = architecture in ("RobertaForTokenClassification", "RoFormerForTokenClassification")
    return OF_OUTPUT | OF_HEADS if plain else OF_OUTPUT


def other_values(field, value):
    choices = field.metadata.get("choices")
    if choices is not None:
        return [choice for choice in choices if choice != value]
    if value is None:
        return [{Optional[int]: 2, Optional[str]: "other"}.get(field.type, True)]
    if isinstance(value, bool):
        return [not value]
    return [f"other {value}"] if isinstance(value, str) else [value * 2 or 1]


@pytest.mark.parametrize("target", FIRST_ROWS)
def test_every_setting_is_expressed_or_refused_by_name(target):
    """Tests all architectures of a class, and all settings, whichever module registers them."""
    table = table_of(target)
    family, sizes = table.kind.family, SIZES[table.kind.name]
    given = EXPRESSED[FIRST_ROWS[target]].settings
    usual = {**defaults_of(family.dataclass), **SCALED, **sizes, **given}
    rows = {"max_position_embeddings": LONGEST + 2}  # exports take this from the tensors
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
                    config = Config("config.json", {**rows, **written(settings)})
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
    with pytest.raises(UsageError, match=f"--head .*: {table.name} has no such head"):
        ClassExporter(table._replace(architectures=bare)).export(wanted)
    assert list(tmp_path.iterdir()) == []
