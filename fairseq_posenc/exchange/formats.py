"""The registry of formats: what reads a foreign model, what writes one, and what both report.

A format is one file with an :class:`Importer`, an :class:`Exporter`, or both, and a call of
:func:`register_format`, also in a user's own ``--user-dir``.  Reading yields settings and
parameters by fairseq's names; writing takes a checkpoint of this plug-in.  Everything else (the
checkpoint, dict.txt, temporary folders, the comparison of both models) is shared.

A setting with the role ``model`` is refused unless a format lists it as :class:`Expressible`, so a
flag that is added later is refused until somebody lists it.
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

#: Computes logits, given right-padded tokens (B, T), numbered as in fairseq, and segments (B, T):
#: (B, T, V) in the order of fairseq's dictionary, or (B, N) or (B, T, N) for a head.
Logits = Callable[[Tensor, Tensor], Tensor]


class ForeignModel(NamedTuple):
    """A foreign model, as the reference for a converted one."""

    logits: Logits  # computes its logits
    description: str  # the implementation that computes them, for messages
    # computes the logits of each further classification head, by its name
    heads: Mapping[str, Logits] = MappingProxyType({})


class Imported(NamedTuple):
    """A model read from a foreign format."""

    settings: Settings  # flags of the model, by name
    # its parameters by fairseq's names, rows of the vocabulary in fairseq's order
    parameters: Parameters
    origin: Mapping[str, str]  # the foreign name of each parameter, for messages
    vocabulary: Vocabulary  # the symbols
    # what ``--verify`` compares with, or None if nothing can run the foreign model
    foreign: Optional[ForeignModel] = None
    # name of the classification or token head of the foreign model, if any
    head: Optional[str] = None
    notes: Collection[str] = ()  # what the user should know
    kind: Kind = MASKED  # what the model becomes
    labels: Collection[str] = ()  # names of the classes of *head*, if they have some


class Flag(NamedTuple):
    """A flag of ``fairseq-posenc import`` or ``export`` that some formats take."""

    name: str  # its name in :attr:`Wanted.options`; ``verify_file`` is ``--verify-file``
    help: str  # what it does
    metavar: Optional[str] = None  # the name of its value
    choices: Optional[Tuple[str, ...]] = None  # the values that it can have, if these are few
    nargs: Optional[str] = None  # the number of its values, as for ``ArgumentParser.add_argument``
    # makes the value from what is on the command line, or raises a ValueError
    read: Callable[[Any], Any] = lambda value: value


class Wanted(NamedTuple):
    """An import or export that a user asks for."""

    path: str  # what is read: the foreign model, or the checkpoint
    out: str  # the folder or file to write
    verify: bool = False  # compare both models
    # values of the format's flags, by the names of the flags
    options: Mapping[str, Any] = MappingProxyType({})

    def get(self, name: str) -> Any:
        """The value of a flag, or None."""
        return self.options.get(name)


class Report(NamedTuple):
    """The result of a conversion."""

    files: List[str]  # the files written
    notes: List[str]  # what the user should know
    difference: Optional[float] = None  # largest difference of the outputs, if they were compared
    compared_with: str = ""  # the reference of that comparison
    # the numbers of identical translations of a file and of all, if they were compared
    same: Optional[Tuple[int, int]] = None
    quantization: str = "float32"  # type of the weights

    def lines(self) -> List[str]:
        """The report as text."""
        found = [f"note: {note}" for note in self.notes]
        if self.difference is not None:
            found.append(f"largest difference from {self.compared_with}: {self.difference:.2e}")
        if self.same is not None:
            found.append("identical beam translations: {} of {}".format(*self.same))
        return [*found, *(f"wrote {file}" for file in self.files)]


class Importer:
    """Reads models of a format."""

    #: Values of ``model_type`` in config.json for which projections have weights (C_in, C_out).
    transposed: Collection[str] = ()

    def read(self, path: str, vocab: Optional[str]) -> Imported:
        """Read a model.

        Args:
            vocab: its vocabulary, if that is not at the format's usual place.

        Raises:
            UsageError: a file is missing, damaged or of another kind, sizes do not match, or this
                plug-in cannot express the model.
        """
        raise NotImplementedError


class Exporter:
    """Writes models of a format; most exporters inherit from its subclass
    :class:`~fairseq_posenc.exchange.exporter.CheckpointExporter`, which writes folders."""

    #: The flags that it takes besides ``--verify``.
    flags: Tuple[Flag, ...] = ()

    def takes(self) -> Tuple[Flag, ...]:
        """Its flags, and those of adapters if it can export them."""
        return self.flags

    def export(self, wanted: Wanted) -> Report:
        """Write a model, complete or not at all.

        Raises:
            UsageError: the checkpoint cannot be read or expressed, *wanted.out* cannot be written,
                or the two models differ by more than 1e-4; nothing is written then.
        """
        raise NotImplementedError


class Format(NamedTuple):
    """A registered format."""

    summary: str  # one clause for ``fairseq-posenc list``
    importer: Optional[Importer] = None  # reads it, or None
    exporter: Optional[Exporter] = None  # writes it, or None

    @property
    def ways(self) -> str:
        """The commands that take it."""
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
        name: its name on the command line.
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
    """The importer or the exporter of a format, for the *command* ``import`` or ``export``."""
    ways = {key: getattr(each, command + "er") for key, each in FORMATS.items()}
    if ways.get(name) is None:
        known = ", ".join(key for key, way in ways.items() if way is not None)
        problem = f"this format has no {command}" if name in ways else "unknown format"
        raise UsageError(f"{command} {name}: {problem}; expected one of {known}")
    return ways[name]


def export_flags() -> Dict[Flag, List[str]]:
    """The flags of all exporters, with the names of the formats that take each."""
    takers: Dict[Flag, List[str]] = {}
    for name, entry in FORMATS.items():
        for flag in entry.exporter.takes() if entry.exporter else ():
            takers.setdefault(flag, []).append(name)
    return takers


def check_flags(name: str, wanted: Wanted) -> None:
    """Refuse flags that have no effect on an export."""
    for flag, takers in export_flags().items():
        value = wanted.get(flag.name)
        if value is not None and name not in takers:
            shown = " ".join(value) if isinstance(value, list) else value
            raise UsageError(
                f"{flag_of(flag.name)} {shown}: is for export {' or '.join(takers)}, and has no "
                f"effect on {name}; drop it"
            )


#: Settings that show in the modules and parameters of a model, which formats read instead.
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
    """What a format can express."""

    target: str  # the format, for messages
    # names of settings of which every value can be expressed, or has no effect there
    any: Collection[str]
    # by other settings, the values that can be expressed; a setting that is in neither collection
    # needs its default, if it has an effect
    values: Mapping[str, Collection[Any]]


def refuse_inexpressible(
    path: str, family: Family, settings: Mapping[str, Any], expressible: Expressible
) -> None:
    """Refuse a checkpoint whose conversion would change what it computes.

    Flags registered by other packages are compared as well, so that none is dropped silently.  A
    setting that the format does not name may have any value where it changes nothing.

    Raises:
        UsageError: naming each flag that is lost, with the values that the format has.
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
