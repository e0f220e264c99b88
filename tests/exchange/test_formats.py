"""The registry of formats: every entry, and one of a user's own."""

import pytest
import torch
from support.conversion import convert, refuses
from support.foreign_models import SOURCES, trained
from support.translations import write_translation

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.checkpoints.reading import load_file
from fairseq_posenc.exchange import FORMATS, Exporter, Flag, Importer, register_format
from fairseq_posenc.exchange.formats import Format, export_flags
from fairseq_posenc.exchange.transfer import import_flags
from fairseq_posenc.models.kinds import CAUSAL, KINDS, MASKED, TRANSLATION

EXPORTED = [name for name, entry in FORMATS.items() if entry.exporter]
IMPORTED = [name for name, entry in FORMATS.items() if entry.importer]


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


@pytest.mark.parametrize("name", EXPORTED)
def test_every_export_refuses_what_it_cannot_express(inexpressible, tmp_path, name):
    package = "safetensors" if name.startswith("hf-") else name
    pytest.importorskip(package, reason="an extra")
    table = getattr(FORMATS[name].importer, "source", None)
    usual = TRANSLATION if name == "hf-remote-code" else MASKED
    model = inexpressible[(table.kind if table else usual).name]
    refuses([str(model), "--attention elu"], "export", name, model, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", IMPORTED)
def test_every_import_refuses_what_is_not_there(tmp_path, name):
    refuses([str(tmp_path / "absent")], "import", name, tmp_path / "absent", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_every_import_is_tested():
    assert set(SOURCES) == set(IMPORTED)


@pytest.mark.parametrize("name", IMPORTED)
def test_half_precision_becomes_float32(tmp_path, out, name):
    source = SOURCES[name](tmp_path / "source")
    path = next(path for path in (tmp_path / "source").iterdir() if path.suffix in (".bin", ".pt"))
    content = load_file(path)
    tensors = content.get("model", content)
    tensors.update({key: value.half() for key, value in tensors.items()})
    torch.save(content, path)
    convert("import", name, source, out)
    whole = load_file(out / "checkpoint.pt")["model"]
    assert {value.dtype for value in whole.values()} == {torch.float32}
    assert all(torch.equal(value, value.half().float()) for value in whole.values())


@pytest.mark.parametrize("name", IMPORTED)
def test_every_file_of_a_model_is_needed(tmp_path, out, name):
    source = SOURCES[name](tmp_path / "source")
    for path in sorted((tmp_path / "source").iterdir()):
        content = path.read_bytes()
        path.unlink()
        refuses([str(path.parent), path.name], "import", name, source, out)
        path.write_bytes(content)


@pytest.mark.parametrize("command, known", [("import", IMPORTED), ("export", EXPORTED)])
@pytest.mark.parametrize("name", [*FORMATS, "absent"])
def test_the_command_line_has_what_is_registered(tmp_path, command, known, name):
    if name not in known:
        refuses([f"{command} {name}: ", *known], command, name, tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize("name", EXPORTED)
def test_flags_without_effect_are_refused_with_the_formats_that_take_them(tmp_path, name):
    flags = {"vocab": "x", "head": "x", "data": "x", "quantization": "int8", "verify-file": "x"}
    known = {n: [flag_of(flag.name)[2:] for flag in FORMATS[n].exporter.takes()] for n in EXPORTED}
    for flag in [flag for flag in flags if flag not in known[name]]:
        takers = [n for n in EXPORTED if flag in known[n]]
        words = [f"--{flag} {flags[flag]}", *takers, f"no effect on {name}"]
        refuses(words, "export", name, tmp_path / "a", tmp_path / "b", f"--{flag}", flags[flag])


def test_every_flag_of_a_format_says_what_it_does():
    assert [flag.name for flag in (*export_flags(), *import_flags()) if not flag.help] == []


@pytest.mark.parametrize("name", ["vocab", "verify", "source"])
def test_a_flag_with_the_name_of_another_is_refused(monkeypatch, tmp_path, name):
    exporter = Exporter()
    exporter.flags = (Flag(name, "something else"),)
    monkeypatch.setitem(FORMATS, "mine", Format("", exporter=exporter))
    words = [f"--{name}: ", "mine", "give it another name"]
    refuses(words, "export", "mine", tmp_path / "a", tmp_path / "b")


def test_registering():
    with pytest.raises(UsageError, match="format tupe: registered twice"):
        register_format("tupe", summary="", importer=Importer())
    with pytest.raises(UsageError, match="format mine: give an importer, an exporter, or both"):
        register_format("mine", summary="")
    assert "mine" not in FORMATS
    assert len({kind.name for kind in KINDS}) == len(KINDS)
