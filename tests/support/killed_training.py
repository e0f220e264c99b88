"""A training that is killed at random moments and started again until it is complete.

    python killed_training.py SEED KILLS ARGUMENT...

runs ``fairseq-train ARGUMENT...`` in a fork of this process.  The fork is killed with SIGKILL
before, in or after a save, a copy, a removal or an update, or some milliseconds after its first
update (but before its third, so that a fast machine cannot finish before the last kill).  Then the
training is started again; after KILLS kills it runs to the end.  Standard error lists the kills.
"""

import os
import random
import shutil
import signal
import sys
import time
import traceback
from argparse import Namespace

import torch
from fairseq import options, utils
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils
from fairseq.trainer import Trainer
from fairseq_cli import train

#: Functions; a training is killed before or after a call of one of them.
AROUND = [(os, "replace"), (os, "fsync"), (os, "remove")]
AROUND += [(Trainer, "train_step"), (Trainer, "valid_step")]
#: Functions that a kill interrupts, each with code that leaves half of the file that it wrote.
WITHIN = {
    (torch, "save"): lambda content, file: (file.flush(), file.truncate(file.tell() // 2)),
    (shutil, "copyfile"): lambda source, copy: os.truncate(copy, os.path.getsize(copy) // 2),
}
LATER = "later"
MOMENTS = [LATER, *(f"within {name}" for _, name in WITHIN)]
MOMENTS += [f"{when} {name}" for _, name in AROUND for when in ("before", "after")]


def main():
    seed, kills = map(int, sys.argv[1:3])
    cfg = settings(sys.argv[3:])
    draw = random.Random(seed)
    moments = []
    while len(moments) < kills:
        moments += draw.sample(MOMENTS, len(MOMENTS))
    for attempt, moment in enumerate([*moments[:kills], None]):
        status = start(cfg, moment, draw)
        as_planned = os.WIFSIGNALED(status) if moment else not status
        assert as_planned, f"attempt {attempt} ({moment}) ended as {status}"
        print(f"attempt {attempt}: {moment}", file=sys.stderr, flush=True)


def settings(arguments):
    """fairseq-train's configuration, read once for all attempts."""
    user_dir = arguments[arguments.index("--user-dir") + 1]
    utils.import_user_module(Namespace(user_dir=user_dir))
    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    return convert_namespace_to_omegaconf(args)


def start(cfg, moment, draw):
    """Run the training once; returns its status as ``os.waitpid`` gives it."""
    occurrence, delay = draw.randint(1, 4), draw.uniform(0, 0.2)
    started, first_update = os.pipe()
    pid = os.fork()
    if pid == 0:
        be_trained(cfg, moment, occurrence, first_update)
    os.close(first_update)
    if moment == LATER and os.read(started, 1):
        time.sleep(delay)
        os.kill(pid, signal.SIGKILL)
    os.close(started)
    return os.waitpid(pid, 0)[1]


def be_trained(cfg, moment, occurrence, first_update):
    """Run fairseq-train, and kill it at the n-th *occurrence* of *moment*.  Does not return."""
    status = 1
    try:
        die_at(moment, occurrence, first_update)
        distributed_utils.call_main(cfg, train.main)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def die_at(moment, occurrence, first_update):
    awaited, left = (moment, occurrence) if moment != LATER else ("before train_step", 3)

    def reached(what, halve=None, *args):
        nonlocal left
        left -= what == awaited
        if what == awaited and left == 0:
            if halve:
                halve(*args[:2])
            os.kill(os.getpid(), signal.SIGKILL)

    def wrapped(original, name, halve):
        def wrapper(*args, **kwargs):
            reached(f"before {name}")
            result = original(*args, **kwargs)
            if name == "train_step":
                os.write(first_update, b"*")
            reached(f"within {name}", halve, *args)
            reached(f"after {name}")
            return result

        return wrapper

    for owner, name in [*AROUND, *WITHIN]:
        setattr(owner, name, wrapped(getattr(owner, name), name, WITHIN.get((owner, name))))


if __name__ == "__main__":
    main()
