"""A class of transformers as one table: its tensors, its config.json, and what it can express.

The functions that read and write folders follow such a table in both directions:
:mod:`~fairseq_posenc.exchange.huggingface.entries` has those for config.json,
:mod:`~fairseq_posenc.exchange.huggingface.tensors` those for tensors.
"""

from types import MappingProxyType
from typing import Any, Callable, Collection, Dict, List, Mapping, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fairseq_posenc.exchange.huggingface.encoder_texts import MaskedTexts
from fairseq_posenc.exchange.huggingface.texts import CausalTexts, Texts, TranslationTexts
from fairseq_posenc.exchange.reader import Config, ForeignParameters, Reader
from fairseq_posenc.models.kinds import CAUSAL, MASKED, TRANSLATION, Kind, Settings

#: Modules of a layer, ours.
Q, K, V, OUT = (f"self_attn.{name}_proj" for name in ("q", "k", "v", "out"))
CROSS_Q, CROSS_K, CROSS_V, CROSS_OUT = (f"encoder_attn.{n}_proj" for n in ("q", "k", "v", "out"))
FC1, GATE, FC2 = "fc1", "fc_gate", "fc2"
NORM_1, CROSS_NORM, NORM_2 = (
    f"{name}_layer_norm" for name in ("self_attn", "encoder_attn", "final")
)
#: The modules that read the output of each norm of a layer, where norms come first.
BEHIND = {NORM_1: (Q, K, V), CROSS_NORM: (CROSS_Q,), NORM_2: (FC1, GATE)}
#: The norm after the last layer.
LAST_NORM = "layer_norm"
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Layout(NamedTuple):
    """How a tensor of a class holds several of ours; H is the number of heads."""

    join: Callable[[List[Tensor], int], Tensor]  # makes their tensor, given our tensors and H
    # makes our tensors, given their tensor, the number of our tensors, and H
    split: Callable[[Tensor, int, int], List[Tensor]]


def _join_by_head(parts: List[Tensor], heads: int) -> Tensor:
    by_head = [part.view(heads, -1, *part.shape[1:]) for part in parts]
    return torch.stack(by_head, dim=1).flatten(0, 2)


def _split_by_head(x: Tensor, number: int, heads: int) -> List[Tensor]:
    by_head = x.view(heads, number, -1, *x.shape[1:])
    return [part.flatten(0, 1).clone() for part in by_head.unbind(1)]


#: A tensor of theirs is one of ours.
ALONE = Layout(lambda parts, heads: parts[0], lambda x, number, heads: [x])
#: Rows are ordered by head, and within a head by query, key and value: (H, 3, D, C).
BY_HEAD = Layout(_join_by_head, _split_by_head)
#: All queries, then all keys, then all values, (3·C, C).
IN_ROWS = Layout(
    lambda parts, heads: torch.cat(parts),
    lambda x, number, heads: [part.clone() for part in x.chunk(number)],
)
#: :data:`IN_ROWS` transposed, (C, 3·C): rows are inputs.
TRANSPOSED = Layout(
    lambda parts, heads: torch.cat(parts).t(),
    lambda x, number, heads: [part.clone() for part in x.t().chunk(number)],
)
#: Queries of a class that does not divide products by √D.
UNSCALED = Layout(
    lambda parts, heads: parts[0] / (len(parts[0]) / heads) ** 0.5,
    lambda x, number, heads: [x * (len(x) / heads) ** 0.5],
)


class Joint(NamedTuple):
    """A module of the class, and the modules of ours that it holds."""

    theirs: str  # its name, without the start that all names in a layer have
    # our names, likewise without the start; a module that ours lacks is absent in the class, too
    ours: Tuple[str, ...]
    layout: Layout = ALONE  # how its tensors hold ours
    # whether the layer of this number has it, given the settings
    when: Callable[[Settings, int], bool] = lambda settings, number: True


def joints(prefix: str = "", **ours: str) -> Tuple[Joint, ...]:
    """Modules that hold one of ours each, by their names after *prefix*."""
    return tuple(Joint(prefix + theirs, (mine,)) for theirs, mine in ours.items())


def same(*names: str) -> Tuple[Joint, ...]:
    """Modules that have our names."""
    return tuple(Joint(name, (name,)) for name in names)


class Group(NamedTuple):
    """Entries of config.json and the settings that they hold; :func:`entry` makes most groups."""

    theirs: str  # the name of the first of the entries
    ours: Tuple[str, ...]  # the settings
    # makes the settings, given config.json and the settings of earlier entries
    settings: Callable[[Config, Settings], Settings]
    # makes the entries, given complete settings and, for messages, the checkpoint's path
    entries: Callable[[Settings, str], Dict[str, Any]]
    equal: Tuple[str, ...] = ()  # those of the settings that must be equal to the first


def entry(
    theirs: str,
    ours: Tuple[str, ...],
    checked: Callable[[Config, str, Any], Any] = Config.size,
    usual: Any = None,
    into: Callable[[Any], Any] = lambda value: value,
    back: Callable[[Any], Any] = lambda value: value,
) -> Group:
    """An entry of config.json that holds one setting.

    Args:
        theirs: its name.
        ours: the setting; several if they are equal in the class; the first is then written.
        checked: reads the entry and checks its range.
        usual: its value if absent, or a function of config.json; None if it must be there.
        into: makes the setting from the entry's value.
        back: makes the entry's value from the setting.
    """

    def settings(config: Config, known: Settings) -> Settings:
        absent = usual(config) if callable(usual) else usual
        return dict.fromkeys(ours, into(checked(config, theirs, absent)))

    return Group(theirs, ours, settings, lambda s, path: {theirs: back(s[ours[0]])}, ours[1:])


def choice(theirs: str, ours: Tuple[str, ...], usual: str, known: Collection[str]) -> Group:
    """An entry of config.json that is one of *known*; arguments as for :func:`entry`."""
    return entry(theirs, ours, lambda config, key, usual: config.one_of(key, usual, known), usual)


def fixed(theirs: str, value: Any, usual: Any = None, written: bool = True, why: str = "") -> Group:
    """An entry of config.json with the one value that our models can have.

    Args:
        value: the value, or a function of the settings.
        usual: its value if absent, unless that is *value*.
        why: what a user should know of other values, for the message.
    """

    def entries(known: Settings, path: str = "") -> Dict[str, Any]:
        return {theirs: value(known) if callable(value) else value}

    def settings(config: Config, known: Settings) -> Settings:
        only = entries(known)[theirs]
        config.one_of(theirs, only if usual is None else usual, (only,), why)
        return {}

    return Group(theirs, (), settings, entries if written else lambda known, path: {})


class Table(NamedTuple):
    """A table of positions, learned or fairseq's sinusoids."""

    theirs: str  # its name
    # the row of the first position, given config.json
    first: Callable[[Config], int] = lambda config: 0
    # makes the table (rows, C) of a class that computes it anew in place of saving it
    computed: Optional[Callable[[int, int], Tensor]] = None


class Stack(NamedTuple):
    """One side of a model."""

    ours: str  # start of our names, such as ``decoder.``
    layer: str  # start of the names of the class in layer number ``{}``
    joints: Tuple[Joint, ...]  # the modules of a layer
    embedding: str  # the embedding of tokens
    outside: Tuple[Joint, ...] = ()  # modules outside of layers
    table: Optional[Table] = None  # the table of positions, if it has one
    segments: str = ""  # the embedding of segments, if it has one

    @property
    def side(self) -> str:
        """The start of the names of its settings."""
        return self.ours.split(".")[0]

    @property
    def our_embedding(self) -> str:
        """Our name of the embedding of tokens."""
        return self.ours + "embed_tokens.weight"


class Architecture(NamedTuple):
    """What an architecture of a class has on top of its stacks."""

    # its modules by our names, with ``{}`` for the name of the head
    modules: Mapping[str, str] = _NOTHING
    heads: str = ""  # start of our names of its heads; empty for the output of a language model
    entries: Tuple[Group, ...] = ()  # entries of config.json beside those of the class
    any: Collection[str] = ()  # settings without effect in it, which may have any value
    # other settings that are fixed in it, with their values
    values: Mapping[str, Collection[Any]] = _NOTHING
    # whether a model of these settings is of this architecture
    when: Callable[[Settings], bool] = lambda settings: True
    usual: Optional[str] = None  # the name of an imported head

    def named(self, head: Optional[str]) -> "Architecture":
        """This architecture with a head named *head*."""
        modules = {ours.format(head): theirs for ours, theirs in self.modules.items()}
        return self._replace(modules=modules, usual=head)


#: How a class numbers text, by the kind of its models.
_TEXTS = {
    CAUSAL.name: CausalTexts(),
    MASKED.name: MaskedTexts(),
    TRANSLATION.name: TranslationTexts(),
}


class TransformersClass(NamedTuple):
    """A class of transformers."""

    model_type: str  # its name in config.json
    # the names of its variants, and what each has on top of the stacks
    architectures: Mapping[str, Architecture]
    kind: Kind  # what its models are here
    stacks: Tuple[Stack, ...]  # its sides; that of the output is the last
    entries: Tuple[Group, ...]  # in config.json, beside those of all classes
    # settings that all its models have; a value can be a function of the settings of the entries
    always: Settings
    # other values that it can express, by setting; they replace those of *always*
    values: Mapping[str, Collection[Any]] = _NOTHING
    # further settings; it can express all their values
    any: Collection[str] = ()
    aliases: Mapping[str, str] = _NOTHING  # other names of entries, which it reads as well
    output: str = "lm_head.weight"  # the output projection, if that is not the embedding
    # by the start of a module's name, the entry of config.json that says whether it has a bias,
    # with its usual value, or None if it never has one; other modules always have a bias
    biases: Mapping[str, Optional[Tuple[str, bool]]] = _NOTHING
    # the names of the bias of the output: the usual one, then that of an output that is not the
    # embedding
    output_biases: Tuple[str, ...] = ()
    # whether config.json says that the output is the embedding
    tied: Callable[[Config], bool] = lambda config: config.flag("tie_word_embeddings", True)
    divides: bool = False  # whether an output that is the embedding is divided by √C
    shared: str = ""  # the embedding that two stacks share
    two_embeddings: bool = False  # whether the embeddings of two stacks can differ
    start: str = ""  # the symbol that begins a translation where config.json does not say it
    computed: Tuple[str, ...] = ()  # tensors that it computes where a file lacks them
    # what to do with a loaded model before a conversion is compared with it
    prepare: Callable[[Any], None] = lambda model: None
    unused: Tuple[str, ...] = ()  # starts of the names of tensors without effect
    texts: Optional[Texts] = None  # how it numbers text, by default as its kind does
    padded: bool = True  # whether its files can have rows after the last symbol
    # what is left to do, given the reader, the settings and config.json; returns notes
    after_reading: Callable[[Reader, Settings, Config], List[str]] = lambda *given: []
    # what is left to do, given the tensors and the entries of config.json, in place
    before_writing: Callable[[ForeignParameters, Dict[str, Any]], None] = lambda *given: None

    @property
    def name(self) -> str:
        """Its first architecture, for messages."""
        return f"{next(iter(self.architectures))} of transformers"

    @property
    def gains(self) -> Mapping[str, Tuple[str, ...]]:
        """The norms with gains in the class and none here, and the modules after each."""
        return {**BEHIND, LAST_NORM: ()} if self.always.get("norm") == "rms" else {}

    @property
    def numbering(self) -> Texts:
        """How it numbers text."""
        return self.texts or _TEXTS[self.kind.name]

    @property
    def rows(self) -> List[str]:
        """The names of tensors with a row for each symbol, the embedding first."""
        embeddings = [stack.embedding for stack in self.stacks]
        names = [self.shared, *embeddings, self.output, *self.output_biases]
        return [name for name in names if name]

    def shares(self, config: Config) -> bool:
        """Whether config.json says that two stacks have the same embedding."""
        if not self.two_embeddings:
            return bool(self.shared)
        return config.flag("share_encoder_decoder_embeddings", True)

    def biased(self, module: str, config: Config) -> bool:
        """Whether config.json says that a module of the class has a bias."""
        for start, entry in self.biases.items():
            if module.startswith(start):
                return entry is not None and config.flag(*entry)
        return True
