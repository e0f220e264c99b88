"""Helpers for attention that is computed segment by segment, and again in the backward pass."""

import contextlib
from typing import Any, Callable, Iterator, List, Optional, Sequence

import torch
from torch import Tensor


def gradients_of(
    compute: Callable[..., Sequence[Optional[Tensor]]],
    given: Sequence[Optional[Tensor]],
    wanted: Sequence[bool],
    gradients: Sequence[Tensor],
    parameters: Sequence[Tensor] = (),
) -> List[Optional[Tensor]]:
    """Call *compute*, and return the gradients of its arguments and parameters.

    >>> x = torch.tensor([3.0])
    >>> gradients_of(lambda x, y: (x * x * y,), [x, x], [True, False], [torch.ones(1)])
    [tensor([18.]), None]

    Args:
        compute: a function of what is *given*; its results may be None.
        given: the arguments of *compute*, tensors or None.
        wanted: whether the gradient of each argument is wanted.
        gradients: the gradients of the results; results beyond their number are not differentiated.
        parameters: tensors that *compute* reads beside its arguments, and whose gradients are
            wanted.

    Returns:
        the gradients of the arguments and then of the parameters, None where there is none.
    """
    leaves = [None if x is None else x.detach() for x in given]
    found: List[Optional[Tensor]] = [None] * (len(leaves) + len(parameters))
    places = [n for n, (x, needed) in enumerate(zip(leaves, wanted)) if x is not None and needed]
    sought = [leaves[place].requires_grad_() for place in places]  # type: ignore[union-attr]
    sought += parameters
    places += range(len(leaves), len(found))
    with torch.enable_grad():
        results = zip(compute(*leaves), gradients)
    kept = [(x, gradient) for x, gradient in results if x is not None and x.requires_grad]
    if kept:
        outputs, weights = zip(*kept)
        parts = torch.autograd.grad(outputs, sought, list(weights), allow_unused=True)
        for place, part in zip(places, parts):
            found[place] = part
    return found


def joined(parts: Sequence[Tensor], dim: int) -> Tensor:
    """Concatenate the results of all segments along *dim*; a single one is returned as it is."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=dim)


def random_state(device: torch.device) -> Tensor:
    """The state of the generator that draws the random numbers of *device*."""
    if device.type == "cuda":
        return torch.cuda.get_rng_state(device)
    return torch.get_rng_state()


@contextlib.contextmanager
def same_random_numbers(state: Optional[Tensor], device: torch.device) -> Iterator[Any]:
    """A context that draws the random numbers of *state* again; None changes nothing.

    The generator goes on afterwards as if the context had not been there.

    Args:
        state: from :func:`random_state`.
        device: the device whose random numbers are drawn.
    """
    if state is None:
        yield
        return
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng([device] if on_gpu else []):
        torch.cuda.set_rng_state(state, device) if on_gpu else torch.set_rng_state(state)
        yield
