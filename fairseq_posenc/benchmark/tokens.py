"""Single tokens of a beam search, for ``benchmark --positions``."""

import threading
from typing import Any, List

import torch
from torch import nn

from fairseq_posenc.benchmark.models import Run


class _Closed(Exception):
    """Ends a search that is not needed any more."""


class SteppedSearch:
    """A search in a thread of its own, which from a position on waits before each token.

    A call computes one token: the decoder's step, the search's choice of hypotheses, and the
    reordering of the cache for the next token.

    Args:
        run: runs the search.
        decoder: its decoder, called once a token.
        position: the number of tokens that the first step attends to.
    """

    def __init__(self, run: Run, decoder: nn.Module, position: int) -> None:
        self._run, self._decoder, self._position = run, decoder, position
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._errors: List[Exception] = []
        self._closed = self._ended = False
        self._forward, self._threads = decoder.forward, torch.get_num_threads()
        decoder.forward = self._step  # fairseq calls this
        self._thread = threading.Thread(target=self._search, daemon=True)
        self._thread.start()
        self._wait()

    def __call__(self) -> None:
        """Compute one token."""
        self._go.release()
        self._wait()

    def close(self) -> None:
        """End the search."""
        self._closed = True
        self._go.release()
        self._thread.join()
        del self._decoder.forward

    def _search(self) -> None:
        torch.set_num_threads(self._threads)  # PyTorch keeps this number for each thread
        try:
            self._run()
        except _Closed:
            pass
        except Exception as error:  # raised again where the token was asked for
            self._errors.append(error)
        self._ended = True
        self._stopped.release()

    def _step(self, tokens: Any, *args: Any, **kwargs: Any) -> Any:
        if tokens.size(1) >= self._position:
            self._stopped.release()
            self._go.acquire()
            if self._closed:
                raise _Closed
        return self._forward(tokens, *args, **kwargs)

    def _wait(self) -> None:
        self._stopped.acquire()
        for error in self._errors:
            raise error
        if self._ended:
            raise RuntimeError("the search is over")
