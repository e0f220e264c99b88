"""Slurm on this machine, with one node and without accounting; by ``pytest_plugins``."""

import functools
import getpass
import os
import shutil
import socket
import subprocess
import time

import pytest
from support import waiting

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "scancel")
#: A requeued job waits for as long as its credentials could be used again, 2 minutes by default.
SETTINGS = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
KillWait=5
MinJobAge=10
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=2000 State=UNKNOWN
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 State=UP PreemptMode=REQUEUE
PartitionName=high Nodes=ALL PriorityTier=10 State=UP PreemptMode=OFF
"""


until = functools.partial(waiting.until, seconds=600, pause=0.5)


def say(*words):
    """The output of a command of Slurm."""
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """Starts the daemons, sets SLURM_CONF, and ends all of them at the end."""
    path = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/usr/local/sbin"])
    programs = {name: shutil.which(name, path=path) for name in PROGRAMS}
    missing = [name for name, place in programs.items() if place is None]
    if missing:
        pytest.skip(f"Slurm is not installed: no {', '.join(missing)}")
    folder = tmp_path_factory.mktemp("slurm")
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    host = socket.gethostname().partition(".")[0]
    settings = SETTINGS.format(
        host=host, user=getpass.getuser(), ports=free_ports(2), folder=folder
    )
    (folder / "slurm.conf").write_text(settings)
    places = [
        f"--{name}={folder}/munge.{name.partition('-')[0]}" for name in ("socket", "pid-file")
    ]
    munge = [programs["munged"], "--foreground", "--force", f"--key-file={key}", *places]
    munge += [f"--seed-file={folder}/munge.seed", f"--log-file={folder}/munge.log"]
    configured = ["-D", "-f", str(folder / "slurm.conf")]
    daemons = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        try:
            for words in (
                munge, [programs["slurmctld"], *configured], [programs["slurmd"], *configured],
            ):  # fmt: skip
                with open(folder / "daemons.log", "a") as log:
                    daemons.append(subprocess.Popen(words, stdout=log, stderr=log))
                time.sleep(2)
            until(lambda: "idle" in say("sinfo", "-h", "-o", "%T"), "an idle node")
            yield
            subprocess.run(["scancel", "--user", getpass.getuser()], timeout=60)
        finally:
            for daemon in reversed(daemons):
                daemon.terminate()
                daemon.wait(timeout=60)
