"""Classes that are built in place of others where a flag is on: stacks, kernels of attention."""

import functools
from typing import Any, Callable, Collection, List, NamedTuple, Optional, Tuple, TypeVar

from fairseq_posenc.flags.options import Options

Class = TypeVar("Class", bound=type)


class Replacement(NamedTuple):
    """A class that is built in place of another where a flag is on."""

    flag: str  # the name of the flag, of which None, False and 0 are off
    thing: Any  # the class
    of: type  # the class that it derives from, and whose place it takes
    value: Optional[str] = None  # the flag's value that asks for the class, if others do not
    # names of flags that have an effect on it, whatever else these need
    reads: Collection[str] = ()
    # why the attention of its layers has no one matrix for all tokens, if it has none, and what to
    # analyse instead
    no_matrix: str = ""


#: All of them, in the order in which they were registered.
REPLACEMENTS: List[Replacement] = []


def register_replacement(flag: str, **entries: Any) -> Callable[[Class], Class]:
    """Class decorator that registers a :class:`Replacement`, given its other entries by name."""

    def add(thing: Class) -> Class:
        REPLACEMENTS.append(Replacement(flag, thing, **entries))
        return thing

    return add


def replacements_in(options: Options) -> List[Replacement]:
    """Those whose flags are on."""
    values = [(each, getattr(options, each.flag, None)) for each in REPLACEMENTS]
    return [each for each, value in values if value and each.value in (None, value)]


def class_for(base: type, options: Options) -> Any:
    """The class that the flags put in place of *base*, or *base* itself.

    Where several flags are on, the classes are joined, and each calls its ``super()``.
    """
    things = [each.thing for each in replacements_in(options) if issubclass(base, each.of)]
    if not things:
        return base
    classes = (*things, base)
    return _joined(tuple(c for c in classes if sum(issubclass(d, c) for d in classes) == 1))


@functools.lru_cache(maxsize=None)
def _joined(classes: Tuple[type, ...]) -> type:
    if len(classes) == 1:
        return classes[0]
    return type("".join(each.__name__ for each in classes), classes, {})
