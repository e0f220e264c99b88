"""Tables that describe classes of transformers: tensors, config.json and supported settings.

Imports and exports follow the same table:
:mod:`~fairseq_posenc.exchange.huggingface.entries` converts config.json in both directions, and
:mod:`~fairseq_posenc.exchange.huggingface.tensors` converts tensors.
"""

from types import MappingProxyType
from typing import Any, Callable, Collection, Dict, List, Mapping, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fairseq_posenc.exchange.huggingface.encoder_texts import MaskedTexts
from fairseq_posenc.exchange.huggingface.texts import CausalTexts, Texts, TranslationTexts
from fairseq_posenc.exchange.reader import Config, ForeignParameters, Reader
from fairseq_posenc.models.kinds import CAUSAL, MASKED, TRANSLATION, Kind, Settings

#: Our names of the modules in a layer.
Q, K, V, OUT = (f"self_attn.{name}_proj" for name in ("q", "k", "v", "out"))
CROSS_Q, CROSS_K, CROSS_V, CROSS_OUT = (f"encoder_attn.{n}_proj" for n in ("q", "k", "v", "out"))
FC1, GATE, FC2 = "fc1", "fc_gate", "fc2"
NORM_1, CROSS_NORM, NORM_2 = (
    f"{name}_layer_norm" for name in ("self_attn", "encoder_attn", "final")
)
#: For each norm in a pre-norm layer, the modules that read its output.
BEHIND = {NORM_1: (Q, K, V), CROSS_NORM: (CROSS_Q,), NORM_2: (FC1, GATE)}
#: The norm after the last layer.
LAST_NORM = "layer_norm"
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Layout(NamedTuple):
    """How one tensor of a class holds one or more of our tensors; H is the number of heads."""

    join: Callable[[List[Tensor], int], Tensor]  # makes the class's tensor from our tensors and H
    # makes our tensors from the class's tensor, the number of our tensors, and H
    split: Callable[[Tensor, int, int], List[Tensor]]


def _join_by_head(parts: List[Tensor], heads: int) -> Tensor:
    by_head = [part.view(heads, -1, *part.shape[1:]) for part in parts]
    return torch.stack(by_head, dim=1).flatten(0, 2)


def _split_by_head(x: Tensor, number: int, heads: int) -> List[Tensor]:
    by_head = x.view(heads, number, -1, *x.shape[1:])
    return [part.flatten(0, 1).clone() for part in by_head.unbind(1)]


#: One tensor of the class is one of our tensors, unchanged.
ALONE = Layout(lambda parts, heads: parts[0], lambda x, number, heads: [x])
#: Rows are ordered by head, and within a head by query, key and value: (H, 3, D, C).
BY_HEAD = Layout(_join_by_head, _split_by_head)
#: Our tensors one after another, such as queries, keys and values, (3·C, C).
IN_ROWS = Layout(
    lambda parts, heads: torch.cat(parts),
    lambda x, number, heads: [part.clone() for part in x.chunk(number)],
)
#: :data:`IN_ROWS` transposed, (C, 3·C): rows are inputs.
TRANSPOSED = Layout(
    lambda parts, heads: torch.cat(parts).t(),
    lambda x, number, heads: [part.clone() for part in x.t().chunk(number)],
)
#: The query projection of a class that does not divide logits by √D; ours is √D times larger.
UNSCALED = Layout(
    lambda parts, heads: parts[0] / (len(parts[0]) / heads) ** 0.5,
    lambda x, number, heads: [x * (len(x) / heads) ** 0.5],
)


class Joint(NamedTuple):
    """A module of the class, and the modules of ours that it contains."""

    theirs: str  # its name, without the prefix of the layer
    # our names, without the prefix of the layer; an export leaves out what our model lacks
    ours: Tuple[str, ...]
    layout: Layout = ALONE  # how its tensors hold our tensors
    # whether a layer has the module, given the settings and the number of the layer
    when: Callable[[Settings, int], bool] = lambda settings, number: True


def joints(prefix: str = "", **ours: str) -> Tuple[Joint, ...]:
    """Modules that each contain one of ours; a keyword is the class's name, without *prefix*."""
    return tuple(Joint(prefix + theirs, (mine,)) for theirs, mine in ours.items())


def same(*names: str) -> Tuple[Joint, ...]:
    """Modules with the same names in the class and here."""
    return tuple(Joint(name, (name,)) for name in names)


class Group(NamedTuple):
    """Entries of config.json and the settings that they determine; see :func:`entry`."""

    theirs: str  # the name of the first entry
    ours: Tuple[str, ...]  # the settings
    # computes the settings from config.json and from the settings of earlier entries
    settings: Callable[[Config, Settings], Settings]
    # computes the entries from complete settings and, for messages, the checkpoint's path
    entries: Callable[[Settings, str], Dict[str, Any]]
    equal: Tuple[str, ...] = ()  # the settings that must be equal to the first one


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
        theirs: the name of the entry.
        ours: the setting, or several that are equal in the class; an export writes the first one.
        checked: reads the entry and checks its range.
        usual: the default of the entry, or a function of config.json; None if it is required.
        into: computes the setting from the entry's value.
        back: computes the entry's value from the setting.
    """

    def settings(config: Config, known: Settings) -> Settings:
        absent = usual(config) if callable(usual) else usual
        return dict.fromkeys(ours, into(checked(config, theirs, absent)))

    return Group(theirs, ours, settings, lambda s, path: {theirs: back(s[ours[0]])}, ours[1:])


def choice(theirs: str, ours: Tuple[str, ...], usual: str, known: Collection[str]) -> Group:
    """An entry of config.json that is one of *known*; arguments as for :func:`entry`."""
    return entry(theirs, ours, lambda config, key, usual: config.one_of(key, usual, known), usual)


def fixed(theirs: str, value: Any, usual: Any = None, written: bool = True, why: str = "") -> Group:
    """An entry of config.json for which our models support only one value.

    Args:
        value: the supported value, or a function of the settings that returns it.
        usual: the default of the entry, if it is not *value*.
        why: an explanation for the message that refuses other values.
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

    theirs: str  # the name in the class
    # the row of the first position, given config.json
    first: Callable[[Config], int] = lambda config: 0
    # computes the table (rows, C), if the class computes it instead of saving it
    computed: Optional[Callable[[int, int], Tensor]] = None


class Stack(NamedTuple):
    """One side of a model: the encoder or the decoder."""

    ours: str  # prefix of our names, such as ``decoder.``
    layer: str  # prefix of the class's names in layer number ``{}``
    joints: Tuple[Joint, ...]  # the modules of a layer
    embedding: str  # the token embedding
    outside: Tuple[Joint, ...] = ()  # modules outside of layers
    table: Optional[Table] = None  # the table of positions, if it has one
    segments: str = ""  # the embedding of segments, if it has one

    @property
    def side(self) -> str:
        """``encoder`` or ``decoder``, the prefix of its settings."""
        return self.ours.split(".")[0]

    @property
    def our_embedding(self) -> str:
        """Our name of the token embedding."""
        return self.ours + "embed_tokens.weight"


class Architecture(NamedTuple):
    """What an architecture of a class adds to the stacks: an output layer or a head."""

    # the class's names of modules, by our names, in which ``{}`` stands for the name of the head
    modules: Mapping[str, str] = _NOTHING
    heads: str = ""  # prefix of our names of heads; empty for the output of a language model
    entries: Tuple[Group, ...] = ()  # entries of config.json, besides the class's entries
    any: Collection[str] = ()  # settings that have no effect in it
    # other settings that it restricts, with the supported values
    values: Mapping[str, Collection[Any]] = _NOTHING
    # whether a model with these settings has this architecture
    when: Callable[[Settings], bool] = lambda settings: True
    usual: Optional[str] = None  # our name of an imported head

    def named(self, head: Optional[str]) -> "Architecture":
        """This architecture with a head named *head*."""
        modules = {ours.format(head): theirs for ours, theirs in self.modules.items()}
        return self._replace(modules=modules, usual=head)


#: The usual vocabulary and tokenizer of a class, by the kind of its models.
_TEXTS = {
    CAUSAL.name: CausalTexts(),
    MASKED.name: MaskedTexts(),
    TRANSLATION.name: TranslationTexts(),
}


class TransformersClass(NamedTuple):
    """The table of a class of transformers."""

    model_type: str  # its name in config.json
    # its architectures by name, and what each adds to the stacks
    architectures: Mapping[str, Architecture]
    kind: Kind  # the kind of its models here
    stacks: Tuple[Stack, ...]  # its sides; the last one has the output
    entries: Tuple[Group, ...]  # its own entries in config.json
    # settings that all its models have; a value can be a function of the settings of the entries
    always: Settings
    # supported values of further settings; they take precedence over *always*
    values: Mapping[str, Collection[Any]] = _NOTHING
    # further settings, for which it supports every value
    any: Collection[str] = ()
    aliases: Mapping[str, str] = _NOTHING  # for each alias, the entry's name
    output: str = "lm_head.weight"  # the output projection, if it is not tied
    # for a prefix of modules' names: the entry of config.json that says whether they have biases,
    # and its default; None if they never have biases.  Other modules always have biases
    biases: Mapping[str, Optional[Tuple[str, bool]]] = _NOTHING
    # the names of the bias of the output: first the usual name, then the name that the bias has if
    # the output is not tied
    output_biases: Tuple[str, ...] = ()
    # whether config.json ties the output projection to the embedding
    tied: Callable[[Config], bool] = lambda config: config.flag("tie_word_embeddings", True)
    divides: bool = False  # whether a tied output is divided by √C
    shared: str = ""  # the embedding that two stacks share
    two_embeddings: bool = False  # whether the embeddings of two stacks can differ
    start: str = ""  # the symbol that begins a translation by default
    computed: Tuple[str, ...] = ()  # tensors that it computes if a file lacks them
    # changes a loaded model before it serves as the reference
    prepare: Callable[[Any], None] = lambda model: None
    unused: Tuple[str, ...] = ()  # prefixes of the names of tensors without effect
    texts: Optional[Texts] = None  # vocabulary and tokenizer, if not the usual ones of its kind
    padded: bool = True  # whether embeddings can have rows beyond the vocabulary
    # completes an import, given the reader, the settings and config.json; returns notes
    after_reading: Callable[[Reader, Settings, Config], List[str]] = lambda *given: []
    # completes an export: changes the tensors and the entries of config.json in place
    before_writing: Callable[[ForeignParameters, Dict[str, Any]], None] = lambda *given: None

    @property
    def name(self) -> str:
        """Its first architecture, for messages."""
        return f"{next(iter(self.architectures))} of transformers"

    @property
    def gains(self) -> Mapping[str, Tuple[str, ...]]:
        """Norms that have gains only in the class, each with the modules that read its output."""
        return {**BEHIND, LAST_NORM: ()} if self.always.get("norm") == "rms" else {}

    @property
    def numbering(self) -> Texts:
        """The vocabulary and tokenizer of the class."""
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
