"""Python processes that start within milliseconds.

A server makes the slow imports once and forks for every command.  It does not import the plug-in:
commands load the plug-in through ``--user-dir``, as users' commands do.  A second server, forked
from the first, has loaded the plug-in already.

    python preloaded.py PYTHON FOLDER ARGUMENT...

does what ``python ARGUMENT...`` does, in a fork of a server that listens in FOLDER.  If the
arguments begin with neither a file nor ``-m MODULE``, it starts PYTHON instead.
"""

import argparse
import array
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
from typing import Any, Callable, Dict, List, Optional, Sequence

# modules that are slow to import; PyTorch imports torch._dynamo when it builds an optimiser
IMPORTS = ["fairseq.trainer", "torch._dynamo", "fairseq.quantization_utils"]
IMPORTS += ["fairseq.data.data_utils_fast", "fairseq.model_parallel.megatron_trainer"]
IMPORTS += ["sacrebleu", "sacremoses", "subword_nmt.apply_bpe", "subword_nmt.learn_bpe"]
IMPORTS += ["pytorch_optimizer"]
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class Fork:
    """A command that runs in a fork of the server that listens at *address*.

    *arguments* are those after ``python``; *streams* are the file descriptors of the command's
    standard input, output and error.
    """

    def __init__(self, address: str, arguments: List[str], streams: Sequence[int]) -> None:
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.connect(address)
        request = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
        files = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))
        self.connection.sendmsg([b"+"], [files])
        self.connection.sendall(json.dumps(request).encode() + b"\n")
        self.answers = self.connection.makefile("rb")
        self.pid = int(self.answers.readline())

    def wait(self, seconds: Optional[float] = None) -> int:
        """Wait for the command (killed after *seconds*); returns its status, or minus a signal."""
        if seconds and not select.select([self.connection], [], [], seconds)[0]:
            os.kill(self.pid, signal.SIGKILL)
        with self.connection:
            return int(self.answers.readline())


def address_for(folder: str, arguments: List[str], program: str = "") -> str:
    """The socket, in *folder*, of the server for a command: ``loaded`` if it needs the plug-in.

    With an environment variable for the plug-in, a command must load the plug-in itself.

    Args:
        arguments: as for :class:`Fork`; the folder after ``--user-dir`` is the plug-in or may
          import it.
        program: a script that may import the plug-in.
    """
    given = zip(arguments, arguments[1:])
    places = [program, *(after for word, after in given if word == "--user-dir")]
    places += [word.partition("=")[2] for word in arguments if word.startswith("common.user_dir=")]
    loads = arguments[:2] == ["-m", "fairseq_posenc"] or any(map(_imports_plug_in, places))
    told = any("FAIRSEQ_POSENC" in name for name in os.environ)
    return os.path.join(folder, "loaded" if loads and not told else "plain")


def _imports_plug_in(place: str) -> bool:
    """Whether a script, or a Python file of a folder, contains the plug-in's name."""
    files = [place] if os.path.isfile(place) else []
    if os.path.isdir(place):
        files = [os.path.join(place, name) for name in os.listdir(place) if name.endswith(".py")]
    for file in files:
        with open(file, "rb") as stream:
            if b"fairseq_posenc" in stream.read():
                return True
    return False


def main() -> None:
    """Replace ``python``: pass the standard streams to a fork and end with its status."""
    python, folder, *arguments = sys.argv[1:]
    if not arguments or (arguments[0].startswith("-") and arguments[0] != "-m"):
        os.execv(python, [python, *arguments])
    fork = Fork(address_for(folder, arguments, arguments[0]), arguments, (0, 1, 2))
    for number in FORWARDED:
        signal.signal(number, lambda received, _: os.kill(fork.pid, received))
    status = fork.wait()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def serve(plain: socket.socket, loaded: socket.socket, user_dir: str) -> None:
    """Answer requests until standard input is closed; commands that still run are then killed.

    Args:
        plain: listens for commands that load the plug-in themselves or do not need it.
        loaded: listens for commands that the second server, with the plug-in, runs.
        user_dir: the folder of the plug-in.
    """
    import quick_hydra

    for name in IMPORTS:
        with contextlib.suppress(ImportError):  # the command that needs it will say so
            importlib.import_module(name)
    sys.modules["torch"].set_num_threads(1)
    quick_hydra.remember()
    _compose("transformer")
    listener = plain
    if os.fork() == 0:
        listener = loaded
        sys.modules["fairseq"].utils.import_user_module(argparse.Namespace(user_dir=user_dir))
        _compose("posenc_transformer")
    gc.collect()
    gc.freeze()  # nothing loaded so far becomes garbage, and forks share its memory pages
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        connection = listener.accept()[0]
        if os.fork() == 0:
            _attend(connection)
        connection.close()
    os.killpg(0, signal.SIGKILL)


def _compose(architecture: str) -> None:
    """Make Hydra compose training settings once, so that its plug-ins are imported."""
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    sys.argv = ["fairseq-train"]
    words = ["data", "--arch", architecture, "--optimizer", "adam"]
    arguments = options.parse_args_and_arch(options.get_training_parser(), words)
    convert_namespace_to_omegaconf(arguments)


def _attend(connection: socket.socket) -> None:
    """Fork the requested command, send its process number and its status, and exit."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    files = connection.recvmsg(1, socket.CMSG_SPACE(3 * 4))[1]
    streams = array.array("i", files[0][2])
    with connection.makefile("rb") as lines:
        request = json.loads(lines.readline())
    pid = os.fork()
    if pid == 0:
        connection.close()
        _become(request, list(streams))
    for number in (0, 1, 2, *streams):
        os.close(number)
    connection.sendall(b"%d\n" % pid)
    status = os.waitpid(pid, 0)[1]
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    with contextlib.suppress(OSError):
        connection.sendall(b"%d\n" % code)
    os._exit(0)


def _become(request: Dict[str, Any], streams: List[int]) -> None:
    """Turn this fork of the server into the requested command; does not return."""
    import atexit
    import logging

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = open(0, encoding="utf-8", closefd=False)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    logging.getLogger().handlers.clear()
    gc.set_threshold(200_000, 50, 50)  # a short process leaves little garbage
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    arguments = request["arguments"]
    execute: Callable[..., Any] = runpy.run_path
    folder = os.path.dirname(os.path.realpath(arguments[0]))
    options: Dict[str, Any] = {}
    if arguments[0] == "-m":
        execute, folder, options = runpy.run_module, request["folder"], {"alter_sys": True}
        del arguments[0]
    extra = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:1] = [folder, *(path for path in extra if path not in sys.path)]
    sys.argv = arguments
    status: Any = 0
    try:
        execute(arguments[0], run_name="__main__", **options)
    except SystemExit as end:
        status = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    if status is not None and not isinstance(status, int):
        print(status, file=sys.stderr)
        status = 1
    # what Python does at its end, except for tearing down modules
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit((status or 0) & 255)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(*(socket.socket(fileno=int(number)) for number in sys.argv[2:4]), sys.argv[4])
    else:
        main()
