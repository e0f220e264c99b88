"""The registry of formats, the interfaces of importers and exporters, and their reports.

A format is one Python file, here or in a user's ``--user-dir``, that defines an :class:`Importer`,
an :class:`Exporter`, or both, and calls :func:`register_format`.  An importer returns settings and
parameters under fairseq's names; an exporter reads a checkpoint of this plug-in.  All formats share
the code for checkpoints, dict.txt, temporary folders, and the comparison of models' outputs.

An export refuses a setting with the role ``model`` that is not at its default unless the format
lists it in :class:`Expressible`.  So a new flag is refused until somebody lists it.
"""

from argparse import Namespace
from types import MappingProxyType
from typing import Any, Callable, Collection, Dict, List, Mapping, NamedTuple, Optional, Tuple

from torch import Tensor

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.configuration.effect import has_effect
from fairseq_posenc.configuration.fields import computing_fields
from fairseq_posenc.exchange.reader import Vocabulary
from fairseq_posenc.flags.options import SIDES
from fairseq_posenc.models.family import Family
from fairseq_posenc.models.kinds import MASKED, Kind, Parameters, Settings

#: A function of right-padded tokens (B, T), numbered as in fairseq, and of segments (B, T) or, in
#: translation, target tokens.  It returns logits (B, T, V) in the order of fairseq's dictionary or,
#: for a head, (B, N) or (B, T, N).
Logits = Callable[[Tensor, Tensor], Tensor]


class ForeignModel(NamedTuple):
    """A foreign model that serves as the reference for its conversion."""

    logits: Logits  # computes its logits
    description: str  # the name of the implementation, for messages
    # for each further classification head, by name, the function that computes its logits
    heads: Mapping[str, Logits] = MappingProxyType({})


class Imported(NamedTuple):
    """A model read from a foreign format."""

    settings: Settings  # the settings of the model, by name
    # the parameters under fairseq's names; rows of symbols are in the order of the dictionary
    parameters: Parameters
    origin: Mapping[str, str]  # file and foreign name of each parameter, for messages
    vocabulary: Vocabulary  # the symbols
    # the reference for ``--verify``, or None if nothing can run the foreign model
    foreign: Optional[ForeignModel] = None
    # name of the classification or token head of the foreign model, if any
    head: Optional[str] = None
    notes: Collection[str] = ()  # what the user should know
    kind: Kind = MASKED  # the kind of model that it becomes
    labels: Collection[str] = ()  # names of the classes of *head*, if known


class Flag(NamedTuple):
    """A flag of ``fairseq-posenc import`` or ``export`` that some formats take."""

    name: str  # its key in :attr:`Wanted.options`: ``verify_file`` for ``--verify-file``
    help: str  # what it does
    metavar: Optional[str] = None  # the name of its value in the help
    choices: Optional[Tuple[str, ...]] = None  # all possible values, if these are few
    nargs: Optional[str] = None  # the number of its values, as for ``ArgumentParser.add_argument``
    # converts the argument on the command line into the value, or raises a ValueError
    read: Callable[[Any], Any] = lambda value: value


class Wanted(NamedTuple):
    """A user's request for an import or an export."""

    path: str  # the input: a foreign model or a checkpoint
    out: str  # the folder or file to write
    verify: bool = False  # whether to compare outputs before and after conversion
    # values of the format's flags, by :attr:`Flag.name`
    options: Mapping[str, Any] = MappingProxyType({})

    def get(self, name: str) -> Any:
        """The value of the flag *name*, or None if it is not set."""
        return self.options.get(name)


class Report(NamedTuple):
    """The result of a conversion."""

    files: List[str]  # the files written
    notes: List[str]  # what the user should know
    difference: Optional[float] = None  # largest difference of outputs, if they were compared
    compared_with: str = ""  # the reference for *difference*
    # the number of identical translations and of all translations, if a file was translated
    same: Optional[Tuple[int, int]] = None
    quantization: str = "float32"  # type of the weights

    def lines(self) -> List[str]:
        """The report as lines of text."""
        found = [f"note: {note}" for note in self.notes]
        if self.difference is not None:
            found.append(f"largest difference from {self.compared_with}: {self.difference:.2e}")
        if self.same is not None:
            found.append("identical beam translations: {} of {}".format(*self.same))
        return [*found, *(f"wrote {file}" for file in self.files)]


class Importer:
    """Reads models of a format."""

    #: The values of ``model_type`` in config.json whose models store projections as (C_in, C_out).
    transposed: Collection[str] = ()

    def read(self, path: str, vocab: Optional[str]) -> Imported:
        """Read a model.

        Args:
            vocab: the path of the vocabulary, or None for the format's usual path.

        Raises:
            UsageError: a file is missing, damaged or of a wrong type, sizes do not match, or this
                plug-in cannot represent the model.
        """
        raise NotImplementedError


class Exporter:
    """Writes models of a format; exporters that write folders inherit from the subclass
    :class:`~fairseq_posenc.exchange.exporter.CheckpointExporter`."""

    #: The flags that it accepts besides ``--verify``.
    flags: Tuple[Flag, ...] = ()

    def takes(self) -> Tuple[Flag, ...]:
        """The exporter's own flags and, if it can export adapters, the flags for adapters."""
        return self.flags

    def export(self, wanted: Wanted) -> Report:
        """Write a model; if this fails, nothing is written.

        Raises:
            UsageError: the checkpoint cannot be read, the format cannot represent it, *wanted.out*
                cannot be written, or the outputs of both models differ by more than 1e-4.
        """
        raise NotImplementedError


class Format(NamedTuple):
    """A registered format."""

    summary: str  # one clause for ``fairseq-posenc list``
    importer: Optional[Importer] = None  # for ``import``, or None
    exporter: Optional[Exporter] = None  # for ``export``, or None

    @property
    def ways(self) -> str:
        """The commands that accept the format, such as ``import and export``."""
        given = {"import": self.importer, "export": self.exporter}
        return " and ".join(name for name, way in given.items() if way is not None)


FORMATS: Dict[str, Format] = {}


def register_format(
    name: str,
    *,
    summary: str,
    importer: Optional[Importer] = None,
    exporter: Optional[Exporter] = None,
) -> None:
    """Add a format to ``fairseq-posenc import`` and ``export``.

    Args:
        name: the name of the format on the command line.
        summary: one clause for ``fairseq-posenc list``.

    Raises:
        UsageError: the name is taken, or there is neither an importer nor an exporter.
    """
    if name in FORMATS:
        raise UsageError(f"format {name}: registered twice; choose another name")
    if importer is None and exporter is None:
        raise UsageError(f"format {name}: give an importer, an exporter, or both")
    FORMATS[name] = Format(summary, importer, exporter)


def format_for(command: str, name: str) -> Any:
    """The importer of a format for the *command* ``import``, its exporter for ``export``."""
    ways = {key: getattr(each, command + "er") for key, each in FORMATS.items()}
    if ways.get(name) is None:
        known = ", ".join(key for key, way in ways.items() if way is not None)
        problem = f"this format does not support {command}" if name in ways else "unknown format"
        raise UsageError(f"{command} {name}: {problem}; expected one of {known}")
    return ways[name]


def export_flags() -> Dict[Flag, List[str]]:
    """Each flag of the exporters, with the names of the formats that accept it."""
    takers: Dict[Flag, List[str]] = {}
    for name, entry in FORMATS.items():
        for flag in entry.exporter.takes() if entry.exporter else ():
            takers.setdefault(flag, []).append(name)
    return takers


def check_flags(name: str, wanted: Wanted) -> None:
    """Refuse flags that the format *name* does not accept for an export."""
    for flag, takers in export_flags().items():
        value = wanted.get(flag.name)
        if value is not None and name not in takers:
            shown = " ".join(value) if isinstance(value, list) else value
            raise UsageError(
                f"{flag_of(flag.name)} {shown}: is for export {' or '.join(takers)} and has no "
                f"effect on {name}; drop it"
            )


#: Settings that need no check, because exporters read their effect from modules and parameters.
FROM_PARAMETERS = (
    *(f"{side}_{name}" for side in SIDES for name in ("layers", "embed_dim", "ffn_embed_dim")),
    *(f"{side}_{name}" for side in SIDES for name in ("attention_heads", "kv_heads")),
    *(f"{side}_{name}" for side in SIDES for name in ("normalize_before", "learned_pos")),
    *(f"{side}_position_encoding" for side in SIDES),
    *("share_decoder_input_output_embed", "share_all_embeddings", "merge_src_tgt_embed"),
    *("no_token_positional_embeddings", "layernorm_embedding", "no_scale_embedding"),
    *("no_decoder_final_norm", "layer_norm_eps", "no_bias", "kv_heads", "qk_norm"),
    "position_encoding",
)


class Expressible(NamedTuple):
    """The settings that a format can represent, and their values."""

    target: str  # the format, for messages
    # names of settings for which every value is supported or has no effect
    any: Collection[str]
    # the supported values of further settings, by name; settings in neither collection must have
    # their defaults, unless they have no effect in the model
    values: Mapping[str, Collection[Any]]


def refuse_inexpressible(
    path: str, family: Family, settings: Mapping[str, Any], expressible: Expressible
) -> None:
    """Refuse a checkpoint if its conversion would change the outputs of the model.

    Flags that other packages registered are checked, too, so that none is dropped silently.  A
    setting that *expressible* does not list may have any value if it has no effect in this model.

    Raises:
        UsageError: it names each unsupported flag, with the values that the format supports.
    """
    lost: Dict[str, Collection[Any]] = {}
    for setting in computing_fields(family.dataclass, Namespace(**settings)):
        name, default = setting.name, setting.metadata.get("default")
        value, known = settings.get(name, default), expressible.values.get(name, (default,))
        if name in expressible.any or value in known:
            continue
        without_effect = value is None or not has_effect(name, settings, family.dataclass)
        if name in expressible.values or not without_effect:
            lost[name] = known
    if lost:
        given = ", ".join(f"{flag_of(name)} {settings[name]}" for name in lost)
        shown = [["models without it" if v is None else str(v) for v in vs] for vs in lost.values()]
        values = ", ".join(map(" or ".join, shown))
        raise UsageError(
            f"{path}: was trained with {given}, but {expressible.target} only supports {values}; "
            "nothing was written"
        )
