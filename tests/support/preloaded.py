"""Python processes that start within milliseconds.

A server makes the slow imports once and forks for every command.  The plug-in is not among what
it imports: a command loads it through ``--user-dir``, as a user's does.  A second server, forked
from the first, has let fairseq load one ``--user-dir`` already.

    python preloaded.py PYTHON FOLDER ARGUMENT...

does what ``python ARGUMENT...`` does, in a fork of the server that listens in FOLDER; for other
arguments than a file or ``-m MODULE`` it starts PYTHON.
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
import shutil
import signal
import socket
import sys
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

# what the commands import slowly; PyTorch imports the second when it builds an optimiser
IMPORTS = ["fairseq.trainer", "torch._dynamo", "fairseq.quantization_utils"]
IMPORTS += ["fairseq.data.data_utils_fast", "fairseq.model_parallel.megatron_trainer"]
IMPORTS += ["sacrebleu", "sacremoses", "subword_nmt.apply_bpe", "subword_nmt.learn_bpe"]
IMPORTS += ["pytorch_optimizer"]
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


# --- the side of the tests


class Fork:
    """A command under way in a fork of the server, which ends when this is closed.

    Args:
        address: socket of the server.
        arguments: as after ``python``: ``["-m", MODULE, ...]`` or ``[FILE, ...]``.
        streams: file descriptors of its standard input, output and error.
    """

    def __init__(self, address: str, arguments: List[str], streams: Sequence[int]) -> None:
        self.connection = socket.socket(socket.AF_UNIX)
        self.connection.connect(address)
        request = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
        files = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))
        self.connection.sendmsg([b"+"], [files])
        self.connection.sendall(json.dumps(request).encode() + b"\n")
        self.pid = int(_line(self.connection))

    def wait(self, seconds: Optional[float] = None) -> int:
        """Exit status, or minus the signal that ended it; an error after so many seconds."""
        self.connection.settimeout(seconds)
        with self.connection:
            return int(_line(self.connection))


def _line(connection: socket.socket, size: int = 1) -> bytes:
    """One line, by default read byte by byte: the next may follow at once."""
    found = b""
    while not found.endswith(b"\n"):
        part = connection.recv(size)
        if not part:
            raise ConnectionError("the other side of a command's socket is gone")
        found += part
    return found


def address_for(folder: str, arguments: List[str], program: str = "") -> str:
    """The socket, in *folder*, of the server that has loaded the plug-in if a command loads it.

    What the environment says of the plug-in is read when it is loaded.

    Args:
        arguments: as for :class:`Fork`; ``--user-dir`` is followed by the plug-in, or by what
            imports it.
        program: a script that may import it, too.
    """
    given = zip(arguments, arguments[1:])
    places = [program, *(after for word, after in given if word == "--user-dir")]
    places += [word.partition("=")[2] for word in arguments if word.startswith("common.user_dir=")]
    loads = arguments[:2] == ["-m", "fairseq_posenc"] or any(map(_imports_plug_in, places))
    told = any("FAIRSEQ_POSENC" in name for name in os.environ)
    return os.path.join(folder, "loaded" if loads and not told else "plain")


def _imports_plug_in(place: str) -> bool:
    """Whether a script, or a module of a folder, mentions the plug-in."""
    files = [place] if os.path.isfile(place) else []
    if os.path.isdir(place):
        files = [os.path.join(place, name) for name in os.listdir(place) if name.endswith(".py")]
    for file in files:
        with open(file, "rb") as stream:
            if b"fairseq_posenc" in stream.read():
                return True
    return False


def main() -> None:
    """Stand in for ``python``: give the standard streams to a fork and end as it does."""
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


# --- the side of the server


def serve(plain: socket.socket, loaded: socket.socket, user_dir: str) -> None:
    """Answer requests for as long as somebody holds the standard input or a connection open.

    A connection whose first byte is ``=`` only holds the server; one with ``+`` starts a command.

    Args:
        plain: listens for commands that load the plug-in themselves, or not at all.
        loaded: listens for commands with this ``--user-dir``.
        user_dir: folder of the plug-in.
    """
    folder = os.path.dirname(plain.getsockname())
    _prepare(os.path.join(folder, "bytecode"))
    first = os.fork() > 0
    listener, other = (plain, loaded) if first else (loaded, plain)
    other.close()
    if not first:
        from fairseq.utils import import_user_module

        import_user_module(argparse.Namespace(user_dir=user_dir))
        _compose(("translation", "transformer"), ("translation", "posenc_transformer"))
        gc.collect()
        gc.freeze()
    waking, woken = socket.socketpair()
    woken.setblocking(False)
    signal.set_wakeup_fd(woken.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    holders: List[Any] = [0]
    running: Dict[socket.socket, int] = {}
    while holders:
        for source in select.select([listener, waking, *holders, *running], [], [])[0]:
            if source is listener:
                connection = listener.accept()[0]
                first, files, *_ = connection.recvmsg(1, socket.CMSG_SPACE(3 * 4))
                if first != b"+":
                    holders.append(connection)
                    continue
                streams = array.array("i", files[0][2])
                request = json.loads(_line(connection, 65536))
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    for other in (listener, waking, woken, connection, *holders[1:], *running):
                        other.close()
                    return _become(request, list(streams))
                for number in streams:
                    os.close(number)
                running[connection] = pid
                connection.sendall(b"%d\n" % pid)
            elif source is waking:
                waking.recv(4096)
                _report(running)
            elif source in running:  # closed by the other side
                os.kill(running[source], signal.SIGKILL)
            elif source in holders:
                holders.remove(source)
    for pid in running.values():
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)  # both servers do


def _prepare(cache: str) -> None:
    """Do once what every command would do before it sees its command line."""
    import quick_hydra

    for name in IMPORTS:
        with contextlib.suppress(ImportError):  # the command that needs it will say so
            importlib.import_module(name)
    import torch

    torch.set_num_threads(1)
    quick_hydra.remember()
    _compose(("translation", "transformer"), ("masked_lm", "roberta"))
    _compose(("language_modeling", "transformer_lm"))
    # the plug-in is compiled once, whatever the environment says of bytecode
    sys.dont_write_bytecode = False
    sys.pycache_prefix = cache
    gc.collect()
    gc.freeze()  # none of this is ever garbage, and forks share its pages


def _compose(*trainings: Tuple[str, str]) -> None:
    """Let Hydra compose the usual configurations, which ``quick_hydra`` remembers.

    The first also imports Hydra's plug-ins and sets up its grammar.

    Args:
        trainings: a task and an architecture each.
    """
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    sys.argv = ["fairseq-train"]
    lines = []
    for task, architecture in trainings:
        criterion = task if task in ("masked_lm", "sentence_prediction") else "cross_entropy"
        choices = ["--arch", architecture, "--criterion", criterion, "--optimizer", "adam"]
        usual = ["--cpu", "--num-workers", "0", "--log-format", "json", "--log-interval", "1"]
        lines.append((options.get_training_parser(task), [*choices, *usual, "--max-epoch", "1"]))
    for task in ("translation", "language_modeling", "masked_lm"):
        for name in (None, "wav2vec2"):  # fairseq-generate's own default, whatever the task
            parser = options.get_generation_parser(default_task=task)
            parser.set_defaults(**({"arch": name} if name else {}))
            lines.append((parser, ["--path", "x", "--cpu"]))
    for parser, flags in lines:
        arguments = options.parse_args_and_arch(parser, ["data", *flags])
        convert_namespace_to_omegaconf(arguments)


def _report(running: Dict[socket.socket, int]) -> None:
    """Send the status of every command that has ended to who waits for it."""
    for connection, pid in list(running.items()):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            with connection, contextlib.suppress(OSError):
                connection.sendall(b"%d\n" % code)
            del running[connection]


def _become(request: Dict[str, Any], streams: List[int]) -> None:
    """Turn a fork of the server into the command."""
    import atexit
    import logging

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
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
    # as at the end of Python, without taking all modules apart
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit((status or 0) & 255)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(*(socket.socket(fileno=int(number)) for number in sys.argv[2:4]), sys.argv[4])
    else:
        main()
