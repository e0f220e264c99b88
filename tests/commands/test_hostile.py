"""Mistakes that show only with data or a checkpoint are reported.

A line of hostile_commands.txt has the start of a command (a key of ``COMMANDS``), further flags
and the outcome: ``ok`` with words of the output, a pattern of our one-line error message, or
``stock`` with a pattern of an error that fairseq itself raises, with its traceback.  Names in
braces are files and folders that ``places`` makes.  Flags that the parser refuses are listed in
tests/models/refusals.txt instead, because testing them needs no processes.
"""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.commands import ROOT, SMALL, TRAINING, USER_DIR, Finished, posenc, run
from support.lists import rows_of
from support.toy_lm import SHAPE

pytestmark = pytest.mark.refusals
pytest_plugins = ["support.toy", "support.toy_lm"]

_SMALL, _SHAPE = shlex.join(SMALL), shlex.join(SHAPE)
_TRAINING = (
    "{plug_in} --cpu --num-workers 0 --optimizer adam --lr 0.01 --max-tokens 160 --max-update 1 "
    "--save-dir {new}/save"
)
_ROFORMER = f"{_TRAINING} --arch roformer_tiny {_SMALL}"
_LM = f"{_TRAINING} --task language_modeling --tokens-per-sample 16"
_MLM = f"{_TRAINING} --task masked_lm --criterion masked_lm --tokens-per-sample 32"

#: Words of cases that need a machine without a GPU or a package: True if this machine has it.
ELSEWHERE = {
    "no GPU": torch.cuda.is_available(),
    "noisy": torch.cuda.is_available(),
    "fairscale": importlib.util.find_spec("fairscale") is not None,
    "--tensorboard-logdir": any(map(importlib.util.find_spec, ("tensorboard", "tensorboardX"))),
}
COMMANDS = {
    "train": f"fairseq_cli.train {{separate}} {_TRAINING} {_SMALL}",
    "roformer": f"fairseq_cli.train {{separate}} {_ROFORMER}",
    "roformer on": f"fairseq_cli.train {_ROFORMER}",
    "lm": f"fairseq_cli.train {{corpus}} {_LM} {_SHAPE}",
    "mlm": f"fairseq_cli.train {{corpus}} {_MLM}",
    "generate": "fairseq_cli.generate {separate} {plug_in} --cpu --beam 2 --max-len-b 10 "
    "--path {model}",
    "generate from": "fairseq_cli.generate {separate} {plug_in} --cpu --beam 2",
    "generate on": "fairseq_cli.generate {plug_in} --cpu --beam 2 --path {model}",
    "interactive": "fairseq_cli.interactive {separate} {plug_in} --cpu --beam 2 --path {model}",
    "validate on": "fairseq_cli.validate {plug_in} --cpu --max-tokens 160 --path {model}",
    "validate": "fairseq_cli.validate {separate} {plug_in} --cpu --task translation --path {model}",
    "eval-lm": "fairseq_cli.eval_lm {corpus} {plug_in} --cpu --path {lm}",
    "hydra": "fairseq_cli.hydra_train --config-dir {examples}/hydra --config-name roformer "
    "common.user_dir={user_dir} common.cpu=true optimization.max_update=1 dataset.num_workers=0 "
    "task.data={separate} checkpoint.save_dir={new}/save hydra.run.dir={new}",
    "posenc": "fairseq_posenc",
}


@pytest.fixture(scope="session")
def places(toy, trained, corpus, trained_lm, once):
    """Files and folders by their names in hostile_commands.txt."""
    model, lm = trained / "checkpoint_last.pt", trained_lm("rotary")

    def make(folder):
        (folder / "empty").mkdir()
        (folder / "file").write_text("a1 a2\n")
        (folder / "latin1").write_bytes("é\n".encode("latin-1"))
        os.mkfifo(folder / "fifo")
        (folder / "run").mkdir()
        shutil.copy(model, folder / "run" / "checkpoint_last.pt")
        (folder / "no_dictionary").mkdir()
        for path in toy.separate.iterdir():
            if not path.name.startswith("dict."):
                os.link(path, folder / "no_dictionary" / path.name)
        shutil.copytree(toy.separate, folder / "unequal")
        for path in (folder / "unequal").glob("valid.src-tgt.tgt.*"):  # train gets the same targets
            shutil.copy(path, path.with_name(path.name.replace("valid", "train")))
        from fairseq_posenc.checkpoints.reading import read_checkpoint

        whole = model.read_bytes()
        (folder / "truncated.pt").write_bytes(whole[: len(whole) // 2])
        (folder / "no_bytes.pt").touch()
        state = read_checkpoint(model)
        state["model"]["decoder.output_projection.weight"][:] = float("nan")
        torch.save(state, folder / "nan.pt")
        changes = {
            "noisy": ("quant_noise_scalar", 0.1),
            "unbuildable": ("activation_fn", "none"),
            "no_scores": ("layer_norm_eps", -1.0),
        }
        for name, (setting, value) in changes.items():
            state = read_checkpoint(model)
            state["cfg"]["model"][setting] = value
            torch.save(state, folder / f"{name}.pt")
        state = read_checkpoint(model)
        del state["last_optimizer_state"]["param_groups"]
        torch.save(state, folder / "no_groups.pt")

    folder = once("hostile", make)
    names = ["empty", "file", "latin1", "fifo", "no_dictionary", "absent", "run", "unequal"]
    return {
        **{name: folder / name for name in names},
        **{path.stem: path for path in folder.glob("*.pt")},
        **{"model": model, "lm": lm, "corpus": corpus},
        **{"separate": toy.separate, "joined": toy.joined, "text": toy.text},
        **{"no_lines": toy.empty, "long": toy.long},
        **{"plug_in": shlex.join(USER_DIR), "user_dir": USER_DIR[1], "examples": ROOT / "examples"},
    }


@pytest.mark.parametrize("start, flags, outcome", rows_of("hostile_commands.txt"))
def test_no_command_is_silently_wrong(start, flags, outcome, places, tmp_path):
    if any(there and word in flags + outcome for word, there in ELSEWHERE.items()):
        pytest.skip("this outcome needs a machine without a package or GPU that this one has")
    words = f"{COMMANDS[start]} {flags}".format(new=tmp_path, **places)
    program, *arguments = shlex.split(words.replace("'", "\\'"))
    _, _, module = program.partition(".")
    finished = run(module, *arguments) if module else posenc(*arguments)
    pattern = outcome.format(new=tmp_path, **places)
    if pattern.startswith("ok"):
        assert finished.status == 0, finished.err[-2000:]
        assert pattern[2:].strip() in finished.out + finished.err
    elif pattern.startswith("stock"):
        assert finished.status != 0
        assert re.search(pattern[5:].strip(), finished.err), finished.err
    else:
        assert re.match("fairseq_posenc: error: " + pattern, finished.message())
        # Hydra always writes its log and its configuration; fairseq writes crash.pt after a crash
        written = tmp_path.rglob("*.pt" if start == "hydra" else "*")
        assert [path for path in written if path.is_file() and path.name != "crash.pt"] == []


def test_installed_command_and_user_dir_with_a_trailing_slash(toy, tmp_path):
    command = Path(sys.executable).with_name("fairseq-train")
    if not command.exists():
        pytest.skip("fairseq's commands are not installed beside this Python")
    arguments = [toy.separate, "--user-dir", USER_DIR[1] + "/", "--save-dir", tmp_path / "none"]
    odd = ["--arch", "roformer_tiny", "--encoder-embed-dim", "20"]
    words = [str(word) for word in (command, *arguments, *TRAINING, *odd)]
    process = subprocess.run(words, capture_output=True, text=True)
    finished = Finished(process.returncode, process.stdout, process.stderr)
    assert "head size 5 of the encoder is odd" in finished.message()
    assert not (tmp_path / "none").exists()
