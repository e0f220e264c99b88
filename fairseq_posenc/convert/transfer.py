"""Importing and exporting: read, write to the side, check, and only then put in place."""

import os
from typing import Any, Dict, List, NamedTuple, Optional

from torch import Tensor

from fairseq_posenc.checkpoints.reading import write_checkpoint
from fairseq_posenc.convert import native
from fairseq_posenc.convert.base import Format, Imported, State
from fairseq_posenc.convert.files import staging, write_text
from fairseq_posenc.convert.verify import TOLERANCE, largest_difference
from fairseq_posenc.errors import UsageError


class Report(NamedTuple):
    """What a conversion has done.

    Args:
        files: what was written.
        notes: what the user should know.
        difference: largest difference of logits, if it was asked for.
        compared_with: what with, in words.
    """

    files: List[str]
    notes: List[str]
    difference: Optional[float]
    compared_with: str


def import_checkpoint(
    format: Format, source: str, out_dir: str, vocab: Optional[str] = None, verify: bool = False
) -> Report:
    """Rotation a foreign model into ``checkpoint.pt`` and ``dict.txt``.

    Args:
        format: the foreign format.
        source: the foreign model.
        out_dir: where the two files go; made if need be.
        vocab: the foreign vocabulary, if it does not lie where the format keeps it.
        verify: compare with the foreign side on the same tokens.

    Returns:
        what was written, and the comparison.

    Raises:
        UsageError: the source cannot be read or expressed, *out_dir* cannot be written to, or the
            two sides differ by more than 1e-4; then nothing has been written.
    """
    folder = source if os.path.isdir(source) else os.path.dirname(source)
    if os.path.realpath(folder) == os.path.realpath(out_dir):
        raise UsageError(f"{out_dir}: is where the model comes from; give another folder")
    imported = format.read(source, vocab)
    with staging(out_dir) as side:
        path, dictionary = os.path.join(side, "checkpoint.pt"), os.path.join(side, "dict.txt")
        write_text(dictionary, imported.vocabulary.text())
        checkpoint = native.new_checkpoint(imported.settings, {}, out_dir)
        checkpoint["model"] = _complete(imported, checkpoint, dictionary)
        write_checkpoint(checkpoint, path)
        model = native.load(path, dictionary)  # what fairseq will not load is not worth keeping
        difference = None
        if verify:
            difference = largest_difference(model, imported.head, imported.reference)
            _check(difference, source, imported.compared_with)
    files = [os.path.join(out_dir, name) for name in ("checkpoint.pt", "dict.txt")]
    flags = f"flags to pre-train it further: {native.flags_of(imported.settings)}"
    return Report(files, [*imported.notes, flags], difference, imported.compared_with)


def export_checkpoint(
    format: Format,
    path: str,
    out_dir: str,
    vocab: Optional[str] = None,
    head: Optional[str] = None,
    verify: bool = False,
) -> Report:
    """Rotation a checkpoint of ours into a foreign model.

    Args:
        format: the foreign format.
        path: the checkpoint.
        out_dir: where its files go; made if need be.
        vocab: its dict.txt, if that lies neither beside it nor in its training data.
        head: name of the head to take along, ``lm`` for the language-model head; by default the
            only classification or token head, or the language-model head if there is none.
        verify: compare with the foreign side on the same tokens.

    Returns:
        what was written, and the comparison.

    Raises:
        UsageError: as :func:`import_checkpoint`.
    """
    if format.write is None:
        raise UsageError(f"{format.name}: can be imported, but not exported")
    checkpoint = native.read_native(path, vocab)
    name = _choose_head(checkpoint, head)
    with staging(out_dir) as side:
        exported = format.write(checkpoint, name, side)
        difference = None
        if verify:
            model = native.load(path, checkpoint.dictionary)
            difference = largest_difference(model, exported.head, exported.reference)
            _check(difference, path, exported.compared_with)
        files = [os.path.join(out_dir, name) for name in sorted(os.listdir(side))]
    return Report(files, exported.notes, difference, exported.compared_with)


def _choose_head(checkpoint: native.NativeCheckpoint, head: Optional[str]) -> Optional[str]:
    known = [
        *checkpoint.heads(native.CLASSIFICATION_HEADS),
        *checkpoint.heads(native.TOKEN_HEADS),
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


def _complete(imported: Imported, checkpoint: Dict[str, Any], dictionary: str) -> State:
    """The parameters of the model that *checkpoint* describes, in its order.

    Raises:
        UsageError: one of them has another shape than the settings ask for.
    """
    model = native.build(checkpoint, dictionary)
    trained = {name for name, _ in model.named_parameters() if not name.startswith(native.LM_HEAD)}
    state: Dict[str, Tensor] = {}
    for name, value in model.state_dict().items():
        given = imported.state.get(name)
        if given is None and name in trained:
            raise UsageError(f"{name}: the source has nothing for this parameter of the model")
        if given is not None and given.shape != value.shape:
            raise UsageError(
                f"{imported.origin[name]} has a size of {_size(given)}, but the settings beside "
                f"it ask for {_size(value)}"
            )
        state[name] = value if given is None else given
    for name, given in imported.state.items():
        state[name] = given  # heads, which fairseq adds while it loads
    if not imported.settings.get("untie_weights_roberta"):
        state[native.LM_HEAD + "weight"] = state[native.EMBEDDING]
    return state


def _size(tensor: Tensor) -> str:
    return " x ".join(str(size) for size in tensor.shape)


def _check(difference: float, source: str, compared_with: str) -> None:
    if not difference <= TOLERANCE:
        raise UsageError(
            f"{source}: the largest difference from {compared_with} is {difference:.3g}, above "
            f"{TOLERANCE:g}; nothing was written"
        )
