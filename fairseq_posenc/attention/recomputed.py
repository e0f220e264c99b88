"""Helpers for attention that the backward pass recomputes segment by segment."""

import contextlib
from typing import Any, Iterator, Optional, Sequence

import torch
from torch import Tensor


def leaf(x: Tensor, gradient: Optional[Tensor]) -> Tensor:
    """*x* without its history; :func:`differentiate` adds to *gradient*, None for no gradient."""
    x = x.detach()
    if gradient is not None:
        x.requires_grad_().grad = gradient
    return x


def differentiate(outputs: Sequence[Tensor], gradients: Sequence[Optional[Tensor]]) -> None:
    """Add to the gradients of the leaves that *outputs* were computed from.

    >>> x, total = torch.tensor([3.0]), torch.ones(1)
    >>> differentiate([leaf(x, total) ** 2], [torch.ones(1)])
    >>> total
    tensor([7.])

    *gradients* are those of the first outputs; others, and those without a gradient, are left out.
    """
    pairs = [pair for pair in zip(outputs, gradients) if pair[0].requires_grad]
    if pairs:
        torch.autograd.backward([x for x, _ in pairs], [gradient for _, gradient in pairs])


def concatenated(parts: Sequence[Tensor], dim: int) -> Tensor:
    """Concatenate the results of all segments along *dim*, without a copy of a single one."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=dim)


def random_state(device: torch.device) -> Tensor:
    """The state of the random generator of *device*."""
    on_gpu = device.type == "cuda"
    return torch.cuda.get_rng_state(device) if on_gpu else torch.get_rng_state()


@contextlib.contextmanager
def same_random_numbers(state: Optional[Tensor], device: torch.device) -> Iterator[Any]:
    """A context in which random numbers start from *state*, of :func:`random_state`, if not None.

    Afterwards they go on as if there had been no context.
    """
    if state is None:
        yield
        return
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng([device] if on_gpu else []):
        torch.cuda.set_rng_state(state, device) if on_gpu else torch.set_rng_state(state)
        yield
