"""A training that is killed at random moments and started again until it is complete.

    python killed_training.py SEED KILLS PROCESSES ARGUMENT...

runs ``fairseq-train ARGUMENT...`` in PROCESSES forks of this process, of which one is killed with
SIGKILL: inside a save, a copy, a removal or an update, or some milliseconds after its first update
(but before its third, so that a fast machine is not done with all updates before the last kill).
The others are killed then, as a launcher does, and all are started anew.  After so many KILLS they
run to the end.  Each moment is written to standard error.
"""

import os
import random
import shutil
import signal
import socket
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

#: Functions before and after whose calls a process dies.
AROUND = [(os, "replace"), (os, "fsync"), (os, "remove")]
AROUND += [(Trainer, "train_step"), (Trainer, "valid_step")]
#: Functions that it dies within: what leaves half of the file that they have written.
WITHIN = {
    (torch, "save"): lambda content, file: (file.flush(), file.truncate(file.tell() // 2)),
    (shutil, "copyfile"): lambda source, copy: os.truncate(copy, os.path.getsize(copy) // 2),
}
MOMENTS = [f"within {name}" for _, name in WITHIN]
MOMENTS += [f"{when} {name}" for _, name in AROUND for when in ("before", "after")]
LATER = "later"


def main():
    seed, kills, processes = map(int, sys.argv[1:4])
    cfg = settings(sys.argv[4:])
    draw = random.Random(seed)
    moments = []
    while len(moments) < kills:
        moments += draw.sample([*MOMENTS, *[LATER] * 4], len(MOMENTS) + 4)
    for attempt, moment in enumerate([*moments[:kills], None]):
        victim = draw.randrange(processes) if moment in (None, LATER) or "_step" in moment else 0
        statuses = start(cfg, processes, victim, moment, draw)
        as_planned = os.WIFSIGNALED(statuses[victim]) if moment else not any(statuses)
        assert as_planned, f"attempt {attempt} ({moment}) ended as {statuses}"
        print(f"attempt {attempt}: {moment}", file=sys.stderr, flush=True)


def settings(arguments):
    """fairseq-train's configuration, read once for all forks."""
    user_dir = arguments[arguments.index("--user-dir") + 1]
    utils.import_user_module(Namespace(user_dir=user_dir))
    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    return convert_namespace_to_omegaconf(args)


def start(cfg, processes, victim, moment, draw):
    """Run the processes once; returns their statuses as ``os.waitpid`` gives them."""
    occurrence, delay = draw.randint(1, 4), draw.uniform(0, 0.2)
    if processes > 1:
        with socket.socket() as listener:
            listener.bind(("localhost", 0))
            port = listener.getsockname()[1]
        group = cfg.distributed_training
        group.distributed_world_size, group.distributed_no_spawn = processes, True
        group.distributed_backend, group.ddp_backend = "gloo", "legacy_ddp"
        group.distributed_init_method = f"tcp://localhost:{port}"
    started, first_update = os.pipe()
    pids = []
    for rank in range(processes):
        pids.append(os.fork())
        if pids[-1] == 0:
            cfg.distributed_training.distributed_rank = rank
            if rank != victim:
                be_trained(cfg)
            be_trained(cfg, moment, occurrence, first_update)
    os.close(first_update)
    if moment == LATER and os.read(started, 1):
        time.sleep(delay)
        os.kill(pids[victim], signal.SIGKILL)
    os.close(started)
    statuses = {victim: os.waitpid(pids[victim], 0)[1]}
    for rank, pid in enumerate(pids):
        if rank != victim:
            if moment is not None:
                os.kill(pid, signal.SIGKILL)
            statuses[rank] = os.waitpid(pid, 0)[1]
    return [statuses[rank] for rank in range(processes)]


def be_trained(cfg, moment=None, occurrence=0, first_update=None):
    """Be fairseq-train until the n-th *occurrence* of a *moment*; does not return."""
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
            if name == "train_step" and first_update is not None:
                os.write(first_update, b"*")
            reached(f"within {name}", halve, *args)
            reached(f"after {name}")
            return result

        return wrapper

    for owner, name in [*AROUND, *WITHIN]:
        setattr(owner, name, wrapped(getattr(owner, name), name, WITHIN.get((owner, name))))


if __name__ == "__main__":
    main()
