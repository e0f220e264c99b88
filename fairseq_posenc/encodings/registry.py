"""The registry of position encodings, and the syntax of ``--position-encoding``.

``rotary`` is one encoding, ``learned+rotary`` a composition of two, and ``rotary*3,none`` a pattern
that repeats over the layers of a stack: here every fourth layer has no positions.
"""

import dataclasses
import re
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Type, TypeVar, cast

from fairseq_posenc.basics.errors import UsageError, near
from fairseq_posenc.encodings.base import Hook, QKVTransform, SharedBias
from fairseq_posenc.encodings.content import ContentBias, DistanceVectors
from fairseq_posenc.flags.by_layer import split_pattern
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.registry import MAY_BE_OWN, Registry
from fairseq_posenc.flags.settings import setting


@dataclass(frozen=True)
class Encoding:
    """Registry entry of a position encoding."""

    name: str  # its name in ``--position-encoding``
    paper: str  # authors, year and arXiv number or venue, for ``fairseq-posenc list``
    summary: str  # one clause for ``fairseq-posenc list``
    acts: Type[Hook]  # the class through which it acts, a subclass of a hook
    flags: Optional[type] = None  # dataclass of its flags, if any
    # class of the vectors that its content-dependent terms project, if any
    distances: Optional[Type[DistanceVectors]] = None
    # factor on 1/sqrt(D), if added terms would raise the variance of logits
    logit_scale: float = 1.0
    # True if a shift of all positions by the same amount changes no output; flags can undo this
    relative: bool = True
    bounded: bool = False  # True if it has a table of positions, which limits the length
    causal_only: Optional[str] = None  # why it needs a causal stack, or None if it does not

    @property
    def takes_positions(self) -> bool:
        """True if the encoding accepts positions other than 0, 1, 2, …."""
        return self.acts.takes_positions

    def is_relative(self, options: Options) -> bool:
        """Whether a shift of all positions leaves outputs unchanged, under the flags of a model."""
        return self.relative and self.acts.shifts_freely(options)

    def _at(self, hook: str) -> Any:
        """The class through which the encoding acts, if its hook is *hook*, or None."""
        return self.acts if self.acts.hook == hook else None

    @property
    def input(self) -> Optional[str]:
        """Name of the fairseq table that is added to the embeddings, or None."""
        return getattr(self._at("input"), "table", None)

    @property
    def transform(self) -> Optional[Type[QKVTransform]]:
        """Class that transforms queries and keys, or None."""
        return self._at("transform")

    @property
    def shared(self) -> Optional[Type[SharedBias]]:
        """Class of content-free logits, or None."""
        return self._at("shared")

    @property
    def content(self) -> Optional[Type[ContentBias]]:
        """Class of content-dependent terms, or None."""
        return self._at("content")


FLAG = "--position-encoding"
#: fairseq's tables that are added to the embeddings.
TABLES = ("learned", "sinusoidal")
ENCODINGS: Registry[Encoding] = Registry(
    FLAG, "encodings (joined with +, or a pattern over layers such as rotary*3,none)"
)

Acting = TypeVar("Acting", bound=type)  # a hook


@dataclass
class ClsFlags:
    """Flags that untie [CLS], for every content-free encoding."""

    untie_cls: Optional[bool] = setting(
        False,
        "replace the content-free logits from and to [CLS], the first token, by learned values "
        "(TUPE Eq. 9)",
    )
    cls_reset: Optional[str] = setting(
        "sum",
        "where learned values replace logits of [CLS]: sum, in the sum of all content-free logits, "
        "as in the TUPE paper; each, in the logits of every encoding, as in the released code",
        choices=("sum", "each"),
        needs={"untie_cls": None},
    )


def register_encoding(
    name: str, *, paper: str, summary: str, **properties: Any
) -> Callable[[Acting], Acting]:
    """Class decorator that registers a position encoding, for every model family.

    The class is a subclass of one of the hooks in :mod:`fairseq_posenc.encodings.base`.

    Args: the fields of :class:`Encoding`; *flags* is a dataclass whose fields are declared with
    :func:`~fairseq_posenc.flags.settings.setting`.

    Raises:
        UsageError: the name is taken or invalid, or the class adds a table that fairseq does not
            have.
    """

    def register(acting: Acting) -> Acting:
        entry = Encoding(name, paper, summary, cast(Any, acting), **properties)
        if entry.acts.hook == "input" and entry.input not in TABLES and name != "none":
            raise UsageError(
                f"{FLAG} {name}: its table is {entry.input}, but fairseq only has "
                f"{' and '.join(TABLES)}; use another hook for your own vectors"
            )
        ENCODINGS.add(name, entry)
        return acting

    return register


def encoding_flags() -> List["dataclasses.Field[Any]"]:
    """The flags of all registered encodings, with defaults, help texts and roles."""
    return [*ENCODINGS.flags(), *dataclasses.fields(ClsFlags)]


def parse_encodings(value: str, flag: str = "") -> List[Encoding]:
    """The registered encodings of one composition, such as ``learned+rotary``, in order."""
    flag = flag or f"{FLAG} {value}"
    names = [name.strip() for name in value.split("+")]
    for name in names:
        if name not in ENCODINGS:
            known = ", ".join(sorted(ENCODINGS))
            raise UsageError(
                f"{flag}: unknown encoding {name!r}; known: {known}; join several "
                f"with +; {MAY_BE_OWN}{near(name, list(ENCODINGS), shown=0)}"
            )
    if len(set(names)) < len(names):
        raise UsageError(f"{flag}: an encoding is named twice; name it once")
    if "none" in names and len(names) > 1:
        raise UsageError(f"{flag}: none cannot be combined with other encodings")
    return [ENCODINGS[name] for name in names]


class Pattern(NamedTuple):
    """A value of ``--position-encoding``: compositions, which repeat over the layers."""

    value: str  # the value of the flag
    period: List[str]  # the compositions of one repetition, such as ``learned+rotary``
    compositions: Dict[str, List[Encoding]]  # the encodings of each composition

    @property
    def encodings(self) -> List[Encoding]:
        """The distinct encodings, in order."""
        every = [encoding for each in self.compositions.values() for encoding in each]
        return list({encoding.name: encoding for encoding in every}.values())


def parse(value: str, flag: str = FLAG) -> Pattern:
    """Parse a pattern: compositions separated by commas, each repeated by ``*`` and a number.

    >>> parse("rotary*3, none").period
    ['rotary', 'rotary', 'rotary', 'none']

    Raises:
        UsageError: a composition is unknown, a count is not a positive integer, or an encoding that
            is added to the embeddings is restricted to some of the layers.
    """
    period: List[str] = []
    compositions: Dict[str, List[Encoding]] = {}
    for item in split_pattern(value, flag, "rotary*3,none"):
        encodings = parse_encodings(item, f"{flag} {value}")
        period.append("+".join([encoding.name for encoding in encodings]))
        compositions[period[-1]] = encodings
    pattern = Pattern(value, period, compositions)
    for encoding in pattern.encodings if len(compositions) > 1 else ():
        if encoding.input is not None:
            raise UsageError(
                f"{flag} {value}: {encoding.name} is added to the embeddings, which all layers "
                "share, so it cannot be restricted to some of them; use it without a pattern"
            )
    return pattern


def all_encodings(value: str) -> List[Encoding]:
    """The distinct encodings of a pattern, in order; see :func:`parse`."""
    return parse(value).encodings


def names_in(value: str) -> List[str]:
    """The distinct names of encodings in a pattern, in order, even if not registered.

    >>> names_in("learned+rotary*3,none")
    ['learned', 'rotary', 'none']
    """
    return list(dict.fromkeys(re.findall(r"[^\W\d]\w*", value)))
