"""Registries that a user's own ``--user-dir`` can extend, and classes that flags replace by others.

An entry has a name, a paper, a one-line summary and optionally a dataclass of flags.  Every model
family accepts these flags.
"""

import contextlib
import dataclasses
import functools
from typing import (
    Any,
    Callable,
    Collection,
    Dict,
    Generic,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Protocol,
    Tuple,
    TypeVar,
)

from fairseq_posenc.basics.errors import UsageError, flag_of, near
from fairseq_posenc.flags.options import Options


class _HasFlags(Protocol):
    @property
    def flags(self) -> Optional[type]:
        """Dataclass of the flags of this entry."""


Entry = TypeVar("Entry", bound=_HasFlags)
Thing = TypeVar("Thing", bound=type)


class Registered(NamedTuple):
    """A registered class."""

    name: str  # its name as a value of the registry's flag
    paper: str  # authors, year and arXiv number
    summary: str  # one clause, or a formula
    thing: Any  # the class
    flags: Optional[type]  # dataclass of its flags, declared with ``setting``


#: For messages about an unregistered name: how a user's own entry gets registered.
MAY_BE_OWN = "if it is your own, import it or give --user-dir with its folder"
#: Called after every registration; model families then declare their flags again.
listeners: List[Callable[[], None]] = []


def tell() -> None:
    """Have the model families declare their flags again."""
    for changed in listeners:
        changed()


@contextlib.contextmanager
def telling_once() -> Iterator[None]:
    """Declare the families' flags once, at the end of the context, for all registrations in it."""
    told = listeners[:]
    changes: List[None] = []
    listeners[:] = [lambda: changes.append(None)]
    yield
    listeners[:] = told
    if changes:
        tell()


class Registry(Dict[str, Entry], Generic[Entry]):
    """Entries by name, selected by *flag*; ``fairseq-posenc list`` shows them under *title*."""

    def __init__(self, flag: str, title: str = "") -> None:
        super().__init__()
        self.flag, self.title = flag, title

    def add(self, name: str, entry: Entry) -> None:
        """Add *entry* under *name*.

        Raises:
            UsageError: the name is taken or is not made of letters, digits and underscores, or a
                flag of the entry has the name of another flag.  The entry is then not added.
        """
        if name in self:
            raise UsageError(f"{self.flag} {name}: registered twice; choose another name")
        if not name.isidentifier():
            raise UsageError(f"{self.flag} {name}: a name must consist of letters, digits and _")
        self[name] = entry
        try:
            tell()
        except UsageError:
            del self[name]
            raise

    def find(self, name: str) -> Entry:
        """The entry called *name*."""
        if name not in self:
            raise UsageError(f"{self.flag} {name}: must be {self.choices(name)}")
        return self[name]

    def choices(self, name: str) -> str:
        """For messages: all names, :data:`MAY_BE_OWN`, and the names that are nearest to *name*."""
        return f"{' or '.join(self)}; {MAY_BE_OWN}{near(name, list(self), shown=0)}"

    def flags(self) -> List["dataclasses.Field[Any]"]:
        """The distinct flags of all entries; entries may share a dataclass or inherit from one."""
        distinct: Dict[str, dataclasses.Field[Any]] = {}
        for name, entry in self.items():
            for field in fields_of(entry.flags) if entry.flags else ():
                if distinct.setdefault(field.name, field) is not field:
                    raise UsageError(
                        f"{self.flag} {name}: declares {flag_of(field.name)}, a flag of another "
                        "entry; choose another name, or inherit from that entry's dataclass"
                    )
        return list(distinct.values())

    def declaring(self, flag: str) -> List[str]:
        """The names of the entries that have a flag of this name."""
        flags = {n: getattr(each.flags, "__dataclass_fields__", ()) for n, each in self.items()}
        return [name for name, declared in flags.items() if flag in declared]


class ClassRegistry(Registry[Registered]):
    """A registry whose entries are classes, registered by a decorator."""

    def register(
        self, name: str, *, paper: str, summary: str, flags: Optional[type] = None
    ) -> Callable[[Thing], Thing]:
        """Class decorator that registers a class; arguments as in :class:`Registered`."""

        def add(thing: Thing) -> Thing:
            self.add(name, Registered(name, paper, summary, thing, flags))
            return thing

        return add


def fields_of(flags: type) -> List["dataclasses.Field[Any]"]:
    """The fields of a dataclass of flags.

    Raises:
        UsageError: *flags* is not a dataclass, or a flag in it was not declared with ``setting``.
    """
    if not dataclasses.is_dataclass(flags):
        raise UsageError(f"{flags.__name__}: flags must be declared in a dataclass; add @dataclass")
    for field in dataclasses.fields(flags):
        if "role" not in field.metadata:
            raise UsageError(
                f"{flags.__name__}.{field.name}: a flag must be declared with "
                "fairseq_posenc.flags.settings.setting(default, help, role=...)"
            )
    return list(dataclasses.fields(flags))


class Replacement(NamedTuple):
    """A class that is built in place of another class if a flag is on."""

    flag: str  # the name of the flag; None, False and 0 are off
    thing: Any  # the class
    of: type  # the class that it derives from and replaces
    value: Optional[str] = None  # the only value that counts as on; None: any that is not off
    # names of flags that have an effect on the class, regardless of their ``needs``
    reads: Collection[str] = ()
    # if its layers have no single attention matrix for all tokens: why, and what to analyse instead
    no_matrix: str = ""


#: All replacements, in the order in which they were registered.
REPLACEMENTS: List[Replacement] = []


def register_replacement(flag: str, **entries: Any) -> Callable[[Thing], Thing]:
    """Class decorator that registers a :class:`Replacement`, given its other fields by name."""

    def add(thing: Thing) -> Thing:
        REPLACEMENTS.append(Replacement(flag, thing, **entries))
        return thing

    return add


def replacements_in(options: Options) -> List[Replacement]:
    """The replacements whose flags are on."""
    values = [(each, getattr(options, each.flag, None)) for each in REPLACEMENTS]
    return [each for each, value in values if value and each.value in (None, value)]


def class_for(base: type, options: Options) -> Any:
    """The class that the flags put in place of *base*, or *base* itself.

    If several flags are on, the result inherits from all their classes; each calls ``super()``.
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
