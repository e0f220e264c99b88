"""Registries that stay open: what a user's own ``--user-dir`` adds is one more entry.

An entry has a name, the paper that describes it, a one-line summary, and maybe a dataclass of flags
of its own, which every model family then has.
"""

import dataclasses
from typing import Any, Callable, Dict, Generic, List, NamedTuple, Optional, TypeVar

from fairseq_posenc.errors import UsageError

Entry = TypeVar("Entry")
Thing = TypeVar("Thing", bound=type)


class Registered(NamedTuple):
    """A class in a registry.

    Args:
        name: what the registry's flag takes.
        paper: authors, year and arXiv number.
        summary: one clause, or its formula.
        thing: the class.
        flags: dataclass of its own flags, declared with :func:`~fairseq_posenc.settings.setting`.
    """

    name: str
    paper: str
    summary: str
    thing: Any
    flags: Optional[type]


#: Called after every registration: model families whose flags have to be declared again.
listeners: List[Callable[[], None]] = []


class Registry(Dict[str, Entry], Generic[Entry]):
    """Entries by the name that a flag takes.

    Args:
        flag: the flag that chooses one, such as ``--norm``.
    """

    def __init__(self, flag: str) -> None:
        super().__init__()
        self.flag = flag

    def add(self, name: str, entry: Entry) -> None:
        """Add *entry* under *name*.

        Raises:
            UsageError: the name is taken, or cannot be written on a command line.
        """
        if name in self:
            raise UsageError(f"{self.flag} {name}: registered twice; choose another name")
        if not name.isidentifier():
            raise UsageError(f"{self.flag} {name}: a name is made of letters, digits and _")
        self[name] = entry
        for changed in listeners:
            changed()

    def find(self, name: str) -> Entry:
        """The entry called *name*.

        Raises:
            UsageError: listing the names there are.
        """
        if name not in self:
            raise UsageError(f"{self.flag} {name}: must be {' or '.join(self)}")
        return self[name]

    def flags(self) -> List["dataclasses.Field[Any]"]:
        """The flags of all entries, each once; entries may share a dataclass or inherit one."""
        owners: List[Optional[type]] = [getattr(entry, "flags", None) for entry in self.values()]
        fields = [field for owner in owners if owner for field in fields_of(owner)]
        return list({field.name: field for field in fields}.values())


class ClassRegistry(Registry[Registered]):
    """A registry whose entries are classes, registered by a decorator."""

    def register(
        self, name: str, *, paper: str, summary: str, flags: Optional[type] = None
    ) -> Callable[[Thing], Thing]:
        """A decorator that makes a class known to the registry's flag, in every family.

        Args:
            name: what the flag takes.
            paper: authors, year and arXiv number.
            summary: one clause, or its formula.
            flags: dataclass of its own flags.
        """

        def add(thing: Thing) -> Thing:
            self.add(name, Registered(name, paper, summary, thing, flags))
            return thing

        return add


def fields_of(flags: type) -> List["dataclasses.Field[Any]"]:
    """The fields of a dataclass of flags.

    Raises:
        UsageError: it is no dataclass, or one of its flags was not declared by ``setting``.
    """
    if not dataclasses.is_dataclass(flags):
        raise UsageError(f"{flags.__name__}: flags are declared in a dataclass; add @dataclass")
    for field in dataclasses.fields(flags):
        if "role" not in field.metadata:
            raise UsageError(
                f"{flags.__name__}.{field.name}: a flag is declared with "
                "fairseq_posenc.settings.setting(default, help, role=...)"
            )
    return list(dataclasses.fields(flags))
