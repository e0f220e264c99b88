"""Importing and exporting: read, write to a temporary folder, check, then move into place."""

import os
from typing import Any, List, NamedTuple, Optional

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.reading import Checkpoint, write_checkpoint
from fairseq_posenc.exchange import native
from fairseq_posenc.exchange.base import Format, Imported
from fairseq_posenc.exchange.files import staging, write_text
from fairseq_posenc.exchange.kinds import CLASSIFICATION_HEADS, TOKEN_HEADS, Parameters
from fairseq_posenc.exchange.verify import compare


class Report(NamedTuple):
    """The result of a conversion.

    Args:
        files: the files written.
        notes: what the user should know.
        difference: largest difference of logits, if they were compared.
        compared_with: the reference of that comparison.
    """

    files: List[str]
    notes: List[str]
    difference: Optional[float]
    compared_with: str


def import_checkpoint(
    format: Format[Any],
    source: str,
    out_dir: str,
    vocab: Optional[str] = None,
    verify: bool = False,
) -> Report:
    """Convert a foreign model into ``checkpoint.pt`` and ``dict.txt``.

    Args:
        format: the foreign format.
        source: the foreign model.
        out_dir: the folder to write to; created if necessary.
        vocab: the foreign vocabulary, if it is not at the format's usual place.
        verify: compare with the foreign model on the same tokens.

    Returns:
        the files written, and the comparison.

    Raises:
        UsageError: the source cannot be read or expressed, *out_dir* cannot be written to, or the
            two models differ by more than 1e-4; nothing is written then.
    """
    folder = source if os.path.isdir(source) else os.path.dirname(source)
    if os.path.realpath(folder) == os.path.realpath(out_dir):
        raise UsageError(f"{out_dir}: is the folder of the source; give another folder")
    opened = format.open(source)
    vocabulary = format.vocabulary(source, vocab)
    imported = format.read(opened, vocabulary)
    foreign = format.foreign(opened, vocabulary.order)
    with staging(out_dir) as side:
        path, dictionary = os.path.join(side, "checkpoint.pt"), os.path.join(side, "dict.txt")
        kind = imported.kind
        write_text(dictionary, vocabulary.text(kind.adds_mask))
        checkpoint = native.new_checkpoint(imported.settings, {}, out_dir, kind)
        checkpoint["model"] = _complete(imported, checkpoint, dictionary)
        write_checkpoint(checkpoint, path)
        model = native.load(path, dictionary, kind)  # check that fairseq can load it
        difference = compare(model, kind, imported.head, foreign, source) if verify else None
    files = [os.path.join(out_dir, name) for name in ("checkpoint.pt", "dict.txt")]
    flags = f"flags to pre-train it further: {native.flags_of(imported.settings, kind)}"
    return Report(files, [*imported.notes, flags], difference, foreign.description)


def export_checkpoint(
    format: Format[Any],
    path: str,
    out_dir: str,
    vocab: Optional[str] = None,
    head: Optional[str] = None,
    verify: bool = False,
) -> Report:
    """Convert a checkpoint of this plug-in into a foreign model.

    Args:
        format: the foreign format.
        path: the checkpoint.
        out_dir: the folder to write to; created if necessary.
        vocab: its dict.txt, if that is neither beside it nor in its training data.
        head: name of the head to export, ``lm`` for the language-model head; by default the only
            classification or token head, or the language-model head if there is none.
        verify: compare with the foreign model on the same tokens.

    Returns:
        the files written, and the comparison.

    Raises:
        UsageError: as for :func:`import_checkpoint`.
    """
    if format.write is None:
        raise UsageError(f"{format.name}: can be imported, but not exported")
    checkpoint = native.read_native(path, vocab)
    name = choose_head(checkpoint, head)
    with staging(out_dir) as side:
        exported = format.write(checkpoint, name, side)
        difference, description = None, ""
        if verify:
            foreign = format.foreign(format.open(side), exported.order)
            model = native.load(path, checkpoint.dictionary, checkpoint.kind)
            difference = compare(model, checkpoint.kind, name, foreign, path)
            description = foreign.description
        files = [os.path.join(out_dir, name) for name in sorted(os.listdir(side))]
    return Report(files, exported.notes, difference, description)


def choose_head(checkpoint: native.NativeCheckpoint, head: Optional[str]) -> Optional[str]:
    """The head to export, by the name given with ``--head``; None is the language-model head.

    Raises:
        UsageError: there is no head of this name, or several without a name given.
    """
    known = [
        *checkpoint.heads(CLASSIFICATION_HEADS),
        *checkpoint.heads(TOKEN_HEADS),
    ]
    if head is None and len(known) > 1:
        raise UsageError(
            f"{checkpoint.path}: has several heads, {', '.join(known)}; choose one with --head, or "
            "--head lm for the language-model head"
        )
    if head is None or head == "lm":
        return known[0] if known and head is None else None
    if head not in known:
        raise UsageError(
            f"--head {head}: {checkpoint.path} has {', '.join(known) or 'no classification head'}; "
            "lm is the language-model head"
        )
    return head


def _complete(imported: Imported, checkpoint: Checkpoint, dictionary: str) -> Parameters:
    """All parameters of the model that *checkpoint* describes, in its order.

    Raises:
        UsageError: the shape of one of them does not match the settings.
    """
    kind = imported.kind
    model = native.build(checkpoint, dictionary, kind)
    trained = {name for name, _ in model.named_parameters() if not name.startswith(kind.head)}
    parameters: Parameters = {}
    for name, value in model.state_dict().items():
        given = imported.parameters.get(name)
        if given is None and name in trained:
            raise UsageError(f"{name}: the source has no counterpart of this parameter")
        if given is not None and given.shape != value.shape:
            raise UsageError(
                f"{imported.origin[name]} has size {native.size_of(given)}, but the settings "
                f"beside it require {native.size_of(value)}"
            )
        parameters[name] = value if given is None else given
    parameters.update(imported.parameters)  # heads, which fairseq adds while it loads
    output = kind.head + "weight"
    if output not in imported.parameters:
        parameters[output] = parameters[kind.embedding]
    return parameters
