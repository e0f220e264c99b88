"""What config.json says of a model, and refusing by name what ours cannot be."""

import os
from typing import Any, Iterable, Sequence, Tuple

import torch

from fairseq_posenc.convert.dictionary import Vocabulary
from fairseq_posenc.convert.huggingface import Folder
from fairseq_posenc.convert.native import LM_HEAD
from fairseq_posenc.convert.reader import Reader
from fairseq_posenc.errors import UsageError

#: The head that ``--task sentence_prediction`` looks for.
SENTENCE_HEAD = "sentence_classification_head"


def config_of(folder: Folder) -> str:
    """The file, for messages."""
    return os.path.join(folder.path, "config.json")


def one_of(folder: Folder, key: str, usual: Any, known: Iterable[Any]) -> Any:
    """The value of *key*, *usual* if there is none.

    Raises:
        UsageError: it is not among *known*.
    """
    value = folder.config.get(key)
    value = usual if value is None else value
    if value not in known:
        raise UsageError(
            f"{config_of(folder)}: {key} {value} is not supported; known: "
            f"{', '.join(map(str, known))}"
        )
    return value


def architecture_of(folder: Folder, known: Sequence[str]) -> str:
    """The class that wrote the folder, the first of *known* if it does not say.

    Raises:
        UsageError: it is not among *known*.
    """
    name = (folder.config.get("architectures") or known)[0]
    if name not in known:
        raise UsageError(
            f"{config_of(folder)}: architecture {name} is not supported; known: {', '.join(known)}"
        )
    return name


def need_numbers(folder: Folder, *keys: str) -> None:
    """Refuse a configuration without whole numbers for *keys*.

    Raises:
        UsageError: naming the first that is none.
    """
    for key in keys:
        if not isinstance(folder.config.get(key), int):
            raise UsageError(
                f"{config_of(folder)}: {key} is {folder.config.get(key)!r}; it has to be a number"
            )


def untied(folder: Folder, *pairs: Tuple[str, str]) -> bool:
    """Whether ``tie_word_embeddings`` is off.

    Args:
        folder: the folder.
        pairs: tensors that are the same if it is on.

    Raises:
        UsageError: it is on, and the two tensors of a pair differ.
    """
    tied, state = folder.config.get("tie_word_embeddings", True), folder.state
    for own, shared in pairs if tied else ():
        if own in state and shared in state and not torch.equal(state[own], state[shared]):
            raise UsageError(
                f"{folder.weights}: {own} and {shared} differ, though tie_word_embeddings in "
                "config.json is true; say there which of the two holds"
            )
    return not tied


def move_output(
    folder: Folder, reader: Reader, own: str, shared: str, vocabulary: Vocabulary
) -> bool:
    """Take the output weight of a model that has no more than that on its last states.

    Args:
        folder: the folder.
        reader: its parameters.
        own: name of the output weight.
        shared: name of the token embedding.
        vocabulary: order of the rows.

    Returns:
        whether it is another than the embedding.

    Raises:
        UsageError: as :func:`untied`.
    """
    separate = untied(folder, (own, shared)) and own in reader
    if separate:
        reader.move_rows(own, LM_HEAD + "weight", vocabulary)
    reader.drop(own)
    return separate


def classes_note(folder: Folder, head: str) -> str:
    """What the classes of a head mean."""
    names = folder.config.get("id2label") or {}
    classes = ", ".join(f"{number} {names[number]}" for number in sorted(names, key=int))
    return f"head {head}, classes: {classes or '0 LABEL_0, 1 LABEL_1'}"
