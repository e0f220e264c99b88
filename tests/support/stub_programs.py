"""Programs that stand in for those of fairseq: they note the call and write little."""

import os
import sys

import pytest
from support.commands import programs

NOTE = '#!/usr/bin/env bash\necho "${0##*/} $*" >>"$CALLS"\n'
TRAIN = """
names=(best last)
while (($#)); do
    case $1 in
        --save-dir) folder=$2 ;;
        --log-file) log=$2 ;;
        --no-last-checkpoints) names=(best) ;;
    esac
    shift
done
mkdir -p "$folder"
for name in "${names[@]}"; do touch "$folder/checkpoint_$name.pt"; done
{
    date +%s%N
    echo '{"epoch": 1, "valid_mcc": "50", "valid_accuracy": "50"}'
    echo "epoch 001 | valid on 'valid' subset | loss 2.0 | ppl 4 | accuracy 50.0"
    echo 'num_updates=2, lr=1 | done training in 1 seconds'
} >"$log"
"""
VALIDATE = """
for subset in valid valid1; do
    echo "INFO | valid on '$subset' subset | loss 0.6 | accuracy 50.0"
done
"""
PREPROCESS = """
while (($#)); do
    case $1 in
        --destdir) folder=$2 ;;
        --source-lang) source=$2 ;;
        --target-lang) target=$2 ;;
        --trainpref) text=$2 ;;
    esac
    shift
done
mkdir -p "$folder"
for lang in "$source" "$target"; do
    echo 'a 1' >"$folder/dict.$lang.txt"
    for split in train valid; do
        cp "$text.$lang" "$folder/$split.$source-$target.$lang.bin"
        touch "$folder/$split.$source-$target.$lang.idx"
    done
done
"""
# the commands of the plug-in that need a model; all else is Python's
PYTHON = """
case "$1 $2 $3" in
    '-m fairseq_posenc pack') mkdir -p "$5" && echo {} >"$5/model.json" ;;
    *) exec {python} "$@" ;;
esac
"""
STUBS = {
    "fairseq-preprocess": PREPROCESS,
    "fairseq-train": TRAIN,
    "fairseq-validate": VALIDATE,
    "fairseq-eval-lm": "\necho 'INFO | Loss (base 2): 6.0, Perplexity: 64.0'\n",
    "python": PYTHON.replace("{python}", sys.executable),
}


class Stubs:
    """Stubs in a folder of their own, and what was called of them.

    Args:
        folder: to write them to.
    """

    def __init__(self, folder):
        folder.mkdir()
        self._calls = folder / "calls"
        for name, body in STUBS.items():
            (folder / name).write_text(NOTE + body)
            (folder / name).chmod(0o755)
        path = os.pathsep.join([str(folder), programs(), os.environ["PATH"]])
        self.variables = {"PATH": path, "CALLS": str(self._calls)}

    def called(self, start):
        """The calls that begin with *start*, of all since this was asked last."""
        lines = self._calls.read_text().splitlines() if self._calls.exists() else []
        self._calls.unlink(missing_ok=True)
        return [line for line in lines if line.startswith(start)]


@pytest.fixture
def stubs(tmp_path_factory):
    return Stubs(tmp_path_factory.mktemp("stubs") / "bin")
