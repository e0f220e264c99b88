"""Stand-ins for fairseq's commands in studies: they write what fairseq would, at once."""

import hashlib
import json
import os
import time
from pathlib import Path

from fairseq_posenc.steps.processes import Ended

EPOCHS = 3
SENTENCES = 4
START = "num. shared model params: 1,234 (num. trained: 1,234)\n"


class FakeCommands:
    """Executes the commands of a run; training goes on from its checkpoint.

    Args:
        pause: seconds that each epoch and command takes, for processes to be killed in between.
        fail: is called with the words before a command, and after each epoch with its number; it
            may raise, or return an exit status.
    """

    def __init__(self, pause=0.0, fail=lambda words, epoch=0: 0):
        self.pause, self.fail, self.ran = pause, fail, []

    def __call__(self, words, log, environment, lock):
        self.ran.append((log.parent.name, log.stem))
        with open(log, "a", encoding="utf-8") as stream:
            status = self.fail(words) or 0
            if status:
                stream.write("Traceback\nRuntimeError: out of luck\n")
                return Ended(status)
            time.sleep(self.pause)
            getattr(self, words[0].rpartition("-")[2])(list(words), stream)
        return Ended(0, 1.0, 100.0)

    def train(self, words, log):
        if "--no-save" in words:  # to measure the speed
            for update in range(1, 4):
                fields = {"epoch": 1, "wps": str(1000 // update), "num_updates": str(update)}
                log.write(json.dumps({**fields, "gb_free": "70"}) + "\n")
            log.write("total memory = 79.5 GB ; name = GPU\n")
            return
        folder = Path(words[words.index("--save-dir") + 1])
        folder.mkdir(parents=True, exist_ok=True)
        last = folder / "checkpoint_last.pt"
        begun = int(last.read_text()) if last.exists() else 0
        log.write(START)
        for epoch in range(begun + 1, EPOCHS + 1):
            updates = 10 * epoch
            loss = 9 - epoch - number_of(log) / 100
            inner = {"epoch": epoch, "loss": f"{loss:.3f}", "num_updates": str(updates)}
            valid = {"epoch": epoch, "valid_loss": f"{loss + 1:.3f}"}
            valid["valid_num_updates"] = str(updates)
            train = {"epoch": epoch, "train_wpb": "7", "train_num_updates": str(updates)}
            for fields in (inner, valid, {**train, "train_train_wall": "2"}):
                log.write(json.dumps(fields) + "\n")
            log.flush()
            time.sleep(self.pause)
            for path in (folder / f"checkpoint{epoch}.pt", last):
                (folder / "partial").write_text(str(epoch))
                os.replace(folder / "partial", path)
            self.fail(words, epoch)
        log.write("done training in 1.0 seconds\n")

    def posenc(self, words, log):
        output = Path(words[words.index("--output") + 1])
        assert (output.parent / "checkpoint_last.pt").read_text() == str(EPOCHS)
        output.write_text("average")

    def validate(self, words, log):
        assert Path(words[words.index("--path") + 1]).exists()
        loss = 5 - number_of(log) / 100
        log.write(json.dumps({"valid_loss": str(loss), "valid_nll_loss": str(loss)}) + "\n")

    def generate(self, words, log):
        folder = Path(words[words.index("--results-path") + 1])
        lines = [f"H-{n}\t-0.1\thypothesis {n}" for n in reversed(range(SENTENCES))]
        subset = words[words.index("--gen-subset") + 1]
        (folder / f"generate-{subset}.txt").write_text("\n".join(lines) + "\n")


def number_of(log):
    """A number from 0 to 99 that depends on the run that a log belongs to."""
    name = Path(log.name).parent.name
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 100
