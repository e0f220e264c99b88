"""The registry of position encodings, and the syntax of ``--position-encoding``.

``rotary`` is one encoding, ``learned+rotary`` a composition of two, and ``rotary*3,none`` a pattern
that repeats over the layers of a stack: here every fourth layer has no positions.
"""

import dataclasses
import re
from dataclasses import dataclass
from typing import Any, Callable, List, Optional, TypeVar, cast

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.encodings.base import Encoding
from fairseq_posenc.encodings.position_ids import POSITION_RULES
from fairseq_posenc.encodings.random_positions import (
    COUNTED,
    EVALUATION_POSITIONS,
    SAMPLERS,
    SPREAD,
)
from fairseq_posenc.flags.by_layer import split_pattern
from fairseq_posenc.flags.registry import MAY_BE_OWN, Registry
from fairseq_posenc.flags.settings import setting
from fairseq_posenc.flags.usage import near

FLAG = "--position-encoding"
#: fairseq's tables of vectors that are added to the embeddings.
TABLES = ("learned", "sinusoidal")
ENCODINGS: Registry[Encoding] = Registry(FLAG)
_PATTERN = "rotary*3,none"  # an example
#: Positions in evaluation are then those over which random ones are drawn in training.
_SPREAD = {"evaluation_positions": (SPREAD,)}

Hook = TypeVar("Hook", bound=type)


@dataclass
class ClsFlags:
    """Flags that untie [CLS], for every content-free encoding."""

    untie_cls: Optional[bool] = setting(
        False,
        "reset the content-free logits from and to [CLS], the first token, to learned values "
        "(TUPE Eq. 9)",
        role="model",
    )
    cls_reset: Optional[str] = setting(
        "sum",
        "which logits get learned [CLS] values: sum, the sum of all content-free logits, as in the "
        "TUPE paper; each, the logits of every encoding, as in the released code",
        role="model",
        choices=("sum", "each"),
        needs={"untie_cls": None},
    )


def takers_of_positions() -> List[str]:
    """The encodings that go by the positions that they are given."""
    return [entry.name for entry in ENCODINGS.values() if entry.takes_positions]


@dataclass
class GivenPositionFlags:
    """The flags by which tokens have other positions than 0, 1, 2 and so on."""

    position_ids: Optional[str] = setting(
        None,
        "positions other than 0, 1, 2 and so on: documents, counted in each document; segments, "
        "inside segments and between them (BiPE); digits, places of digits in numbers (Abacus); "
        "coupling, shared by digits of one significance",
        role="model",
        choices=POSITION_RULES,
        needs={"position_encoding": takers_of_positions},
        traceable=(None,),
    )
    random_positions: Optional[int] = setting(
        None,
        "in training, positions are random (--position-sampler), so that positions of longer "
        "sequences are trained, too; N is at most the positions of the model "
        "(--max-target-positions and the like)",
        role="training",
        model_with=_SPREAD,
        at_least=2,
        at_most=2**31 - 1,
        needs={"position_encoding": takers_of_positions},
    )
    position_sampler: Optional[str] = setting(
        "ordered",
        "what --random-positions N draws: ordered, a sorted sample of 0 … N-1 (Ruoss et al.); "
        "shift, one number from 0 to N by which all positions of a sequence are moved (SHAPE)",
        role="training",
        model_with=_SPREAD,
        choices=SAMPLERS,
        needs={"random_positions": None},
    )
    evaluation_positions: Optional[str] = setting(
        COUNTED,
        "positions in evaluation, after training with --random-positions N: counted, 0, 1, 2 and "
        "so on; spread, over 0 … N-1 in equal steps, which depend on the length of the whole text, "
        "so that nothing can be generated with a cache",
        role="free",
        choices=EVALUATION_POSITIONS,
        needs={"random_positions": None},
        traceable=(COUNTED,),
    )


def register_encoding(
    name: str, *, paper: str, summary: str, **properties: Any
) -> Callable[[Hook], Hook]:
    """Class decorator that registers a position encoding, for every model family.

    The class is a subclass of one of the hooks in :mod:`fairseq_posenc.encodings.base`.

    >>> from fairseq_posenc.encodings.base import SharedBias
    >>> @register_encoding("local", paper="", summary="only neighbours are visible")
    ... class Local(SharedBias):
    ...     def forward(self, places):
    ...         distance = places.queries.unsqueeze(2) - places.keys.unsqueeze(1)
    ...         return (distance.abs() > 1).unsqueeze(1) * -1e4
    >>> parse_encodings("rotary+local")[1].shared
    <class 'fairseq_posenc.encodings.registry.Local'>

    Args:
        name: its value of ``--position-encoding``.
        paper: authors, year and arXiv number or venue.
        summary: one clause.
        properties: what differs from the defaults of :class:`Encoding`, such as its *flags*, a
            dataclass declared with :func:`~fairseq_posenc.flags.settings.setting`.

    Raises:
        UsageError: when the class is decorated, the name is taken or no name, or the class adds a
            table that fairseq does not have.
    """

    def register(hook: Hook) -> Hook:
        entry = Encoding(name, paper, summary, cast(Any, hook), **properties)
        if entry.acts.hook == "input" and entry.input not in TABLES and name != "none":
            raise UsageError(
                f"{FLAG} {name}: its table is {entry.input}, and fairseq's are "
                f"{' and '.join(TABLES)}; vectors of your own act through another hook"
            )
        ENCODINGS.add(name, entry)
        return hook

    return register


def encoding_flags() -> List["dataclasses.Field[Any]"]:
    """The flags of all registered encodings, with defaults, help texts and roles."""
    shared = (ClsFlags, GivenPositionFlags)
    fixed = [flag for each in shared for flag in dataclasses.fields(each)]
    return [*ENCODINGS.flags(), *fixed, *SAMPLERS.flags(), *POSITION_RULES.flags()]


def modern_name(value: str) -> str:
    """A value of ``--position-encoding`` with former names of encodings replaced.

    >>> modern_name("separate*3,none")
    'bert_ad*3,none'
    """
    today = {e.formerly: e.name for e in ENCODINGS.values() if e.formerly}
    # names end at blanks, commas, plus signs and asterisks
    return re.sub(r"[^\s,+*]+", lambda name: today.get(name[0], name[0]), value)


def parse_encodings(value: str, given: str = "") -> List[Encoding]:
    """The encodings of one composition, joined by ``+``.

    Args:
        value: for example ``rotary`` or ``learned+rotary``.
        given: the flag and its whole value, for error messages, if *value* is a part of a pattern.

    Returns:
        the registered encodings, in the order given.

    Raises:
        UsageError: a name is unknown or repeated, or ``none`` is combined with others.
    """
    given = given or f"{FLAG} {value}"
    names = [name.strip() for name in value.split("+")]
    for name in names:
        if name not in ENCODINGS:
            known = ", ".join(sorted(ENCODINGS))
            raise UsageError(
                f"{given}: unknown encoding {name!r}; known: {known}; several are joined "
                f"with +; {MAY_BE_OWN}{near(name, list(ENCODINGS), shown=0)}"
            )
    if len(set(names)) < len(names):
        raise UsageError(f"{given}: an encoding is named twice")
    if "none" in names and len(names) > 1:
        raise UsageError(f"{given}: none cannot be combined with others")
    return [ENCODINGS[name] for name in names]


def parse_pattern(value: str, flag: str = FLAG) -> List[str]:
    """One period of a pattern over layers: the composition of each layer in it.

    >>> parse_pattern("rotary*3,none")
    ['rotary', 'rotary', 'rotary', 'none']

    Args:
        value: compositions separated by commas, each optionally repeated by ``*`` and a number.
        flag: the flag that *value* was given by, for error messages.

    Raises:
        UsageError: a composition is unknown, a count is not a positive integer, or an encoding of
            the input is restricted to some of the layers.
    """
    items = split_pattern(value, flag, _PATTERN)
    found = {item: parse_encodings(item, f"{flag} {value}") for item in dict.fromkeys(items)}
    period = ["+".join(encoding.name for encoding in found[item]) for item in items]
    if len(set(period)) > 1:
        for encoding in all_encodings(value):
            if encoding.input is not None:
                raise UsageError(
                    f"{flag} {value}: {encoding.name} is added to the embeddings, which all layers "
                    "share, so it cannot be restricted to some of them; use it without a pattern"
                )
    return period


def all_encodings(value: str) -> List[Encoding]:
    """The distinct encodings of a pattern, in order."""
    names = dict.fromkeys(split_pattern(value, FLAG, _PATTERN))
    found = [encoding for each in names for encoding in parse_encodings(each)]
    return list({encoding.name: encoding for encoding in found}.values())


def names_in(value: str) -> List[str]:
    """The distinct names of encodings in a pattern, registered or not, in order.

    >>> names_in("learned+rotary*3,none")
    ['learned', 'rotary', 'none']
    """
    items = split_pattern(value, FLAG, _PATTERN)
    return list(dict.fromkeys(name.strip() for item in items for name in item.split("+")))
