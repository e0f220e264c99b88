"""Helpers for attention that the backward pass recomputes segment by segment."""

import contextlib
from typing import Any, Callable, Iterator, List, Optional, Sequence

import torch
from torch import Tensor


def gradients_of(
    compute: Callable[..., Sequence[Optional[Tensor]]],
    inputs: Sequence[Optional[Tensor]],
    needed: Sequence[bool],
    gradients: Sequence[Tensor],
    parameters: Sequence[Tensor] = (),
) -> List[Optional[Tensor]]:
    """Call *compute*, and return the gradients of its arguments and parameters.

    >>> x = torch.tensor([3.0])
    >>> gradients_of(lambda x, y: (x * x * y,), [x, x], [True, False], [torch.ones(1)])
    [tensor([18.]), None]

    Args:
        compute: a function of *inputs*; its results may be None.
        inputs: the arguments of *compute*, tensors or None.
        needed: whether to compute the gradient of each argument.
        gradients: the gradients of the results; results beyond their number are not differentiated.
        parameters: further tensors that *compute* reads, whose gradients are computed, too.

    Returns:
        the gradients of the arguments and then of the parameters, None where there is none.
    """
    leaves = [None if x is None else x.detach() for x in inputs]
    result: List[Optional[Tensor]] = [None] * (len(leaves) + len(parameters))
    indices = [n for n, (x, each) in enumerate(zip(leaves, needed)) if x is not None and each]
    sources = [leaves[n].requires_grad_() for n in indices]  # type: ignore[union-attr]
    sources += parameters
    indices += range(len(leaves), len(result))
    with torch.enable_grad():
        results = zip(compute(*leaves), gradients)
    kept = [(x, gradient) for x, gradient in results if x is not None and x.requires_grad]
    if kept:
        outputs, weights = zip(*kept)
        parts = torch.autograd.grad(outputs, sources, list(weights), allow_unused=True)
        for n, part in zip(indices, parts):
            result[n] = part
    return result


def concatenated(parts: Sequence[Tensor], dim: int) -> Tensor:
    """Concatenate the results of all segments along *dim*, without a copy of a single one."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=dim)


def random_state(device: torch.device) -> Tensor:
    """The state of the random generator of *device*."""
    if device.type == "cuda":
        return torch.cuda.get_rng_state(device)
    return torch.get_rng_state()


@contextlib.contextmanager
def same_random_numbers(state: Optional[Tensor], device: torch.device) -> Iterator[Any]:
    """A context in which the random generator starts from *state*; None changes nothing.

    Afterwards the generator continues as if there had been no context.

    Args:
        state: from :func:`random_state`.
        device: the device of the generator.
    """
    if state is None:
        yield
        return
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng([device] if on_gpu else []):
        torch.cuda.set_rng_state(state, device) if on_gpu else torch.set_rng_state(state)
        yield
