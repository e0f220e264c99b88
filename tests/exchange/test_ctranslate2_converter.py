"""The converter in examples/, in the style of CTranslate2's own: the files of our export."""

import importlib.util
from pathlib import Path

import pytest
import torch
from support.conversion import convert
from support.model_folders import write_model, write_task_model

ctranslate2 = pytest.importorskip("ctranslate2", reason="an extra: the engine of its models")

FILE = Path(__file__).resolve().parents[2] / "examples" / "ctranslate2" / "converter.py"
#: Functions that write a model, and further flags of the export.
MODELS = {
    "translation": (write_model, []),
    "int8": (write_model, ["--quantization", "int8"]),
    "language_modeling": (lambda folder: write_task_model(folder, "language_modeling"), []),
}


@pytest.fixture(scope="module")
def converter():
    """The file as a module."""
    spec = importlib.util.spec_from_file_location("converter", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def arguments(folder, out, *more):
    """Those of the converter for a model in *folder*, with the names of ct2-fairseq-converter."""
    given = {"model_path": folder / "model.pt", "data_dir": folder / "data", "output_dir": out}
    return [*(str(word) for name, path in given.items() for word in (f"--{name}", path)), *more]


@pytest.mark.parametrize("name", MODELS)
def test_its_files_are_those_of_the_export(name, converter, tmp_path):
    write, flags = MODELS[name]
    folder = write(tmp_path / "made")
    convert("export", "ctranslate2", folder / "model.pt", tmp_path / "exported", *flags)
    converter.main(arguments(folder, tmp_path / "converted", *flags))
    files = {path.name: path.read_bytes() for path in (tmp_path / "converted").iterdir()}
    assert {"model.bin", "config.json"} < set(files)
    for file, content in files.items():
        assert (tmp_path / "exported" / file).read_bytes() == content, file


def test_what_is_wrong_is_one_line_and_nothing_is_written(converter, tmp_path):
    made = write_model(tmp_path / "made")
    tupe = write_model(tmp_path / "tupe", "--position-encoding", "tupe")
    (tmp_path / "there").mkdir()
    for words, given in {
        "--position-encoding tupe": arguments(tupe, tmp_path / "out"),
        "--data .*absent: there is no such folder": arguments(
            made, tmp_path / "out", "--data_dir", str(tmp_path / "absent")
        ),
        "--output_dir .*there: exists already": arguments(made, tmp_path / "there"),
        "--vocab_mapping no: no such file": arguments(
            made, tmp_path / "out", "--vocab_mapping", "no"
        ),
    }.items():
        with pytest.raises(SystemExit, match=words) as error:
            converter.main(given)
        assert "\n" not in str(error.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "there", "tupe"]
    converter.main(arguments(made, tmp_path / "there", "--force"))
    assert (tmp_path / "there" / "model.bin").is_file()
    assert torch.is_grad_enabled()
