"""Writing a model folder: checkpoint, dictionaries, subwords, head, settings, card, export."""

import os
import re
import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any, Callable, List, Optional, Sequence

from fairseq.data import Dictionary, data_utils

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import new_folder, refuse_existing
from fairseq_posenc.basics.lines import read_lines
from fairseq_posenc.checkpoints.loader import Loaded, load, named_labels
from fairseq_posenc.checkpoints.reading import (
    Checkpoint,
    read_checkpoint,
    refuse_partial,
    write_checkpoint,
)
from fairseq_posenc.checkpoints.settings import heads_of, task_of
from fairseq_posenc.flags.options import option
from fairseq_posenc.serving import transformers_tokenizer
from fairseq_posenc.serving.card import card
from fairseq_posenc.serving.engines import engine_for
from fairseq_posenc.serving.hub import folder_task, load_folder
from fairseq_posenc.serving.model_folder import (
    CARD,
    CHECKPOINT,
    SETTINGS,
    Head,
    ModelFolder,
    Search,
    read_model_folder,
)
from fairseq_posenc.serving.preparation import Text
from fairseq_posenc.serving.subwords import KINDS, MARK, SUBWORD_FILES, Subwords, unmarked
from fairseq_posenc.serving.translate import Hardware

#: How many texts of the data are compared with the subwords, and how many symbols of each.
_TEXTS, _LONGEST = 300, 300
#: For some kinds of subwords, the mark by which their symbols are recognised.
_MARKS = {
    "subword-nmt": re.compile(".+@@$"),
    "sentencepiece": re.compile("\u2581"),
    "marked-pieces or marked-words": re.compile(f"{MARK}."),
}
#: The largest share of symbols that may fail to fit.  Measured shares are 0 to 0.2 % for a model's
#: own subwords, and 5 % or more for subwords of another text or another size.
_STRANGE = 0.03


def pack(
    args: Namespace, text: Text, export: Callable[[Namespace, ModelFolder, Loaded], Any]
) -> Any:
    """Write a model folder, complete or not at all.

    Args:
        args: the arguments of ``fairseq-posenc pack``.
        text: how the text was prepared, with paths of subword files; languages may be None.
        export: a function that exports the loaded model as *args* say, or refuses a damaged one.

    Returns:
        the report of the export, or None without an export.
    """
    refuse_existing(args.out_dir)
    if not os.path.isdir(args.data):
        raise UsageError(f"--data {args.data}: there is no such folder")
    state = read_checkpoint(args.checkpoint)
    refuse_partial(args.checkpoint, state["model"])
    scores = [_read(path, "--scores") for path in args.scores or ()]
    task = str(option(task_of(state), "_name") or option(task_of(state), "task"))
    packed = _complete(text, args.data, task, state)
    with new_folder(args.out_dir) as side:
        bounds = args.regression_range
        head = head_of(state, task, args.data, bounds)
        if bounds is not None and (head is None or not head.regression):
            raise UsageError(
                f"--regression-range {' '.join(map(str, bounds))}: the model is no regression; "
                "drop the flag"
            )
        folder = ModelFolder(side, task, packed, Search(args.beam, args.lenpen), head)
        _copy_dictionaries(args.data, folder)
        for file in folder_task(task).files:
            _copy(os.path.join(args.data, file), folder.file(file), "--data")
        if text.subword_file is not None:
            _copy_subwords(text.subword_file, folder)
        if text.target_subword_file is not None:
            target = folder.file(str(packed.target_subword_file))
            _copy(text.target_subword_file, target, "--target-subword-file")
        state["last_optimizer_state"] = None
        write_checkpoint(state, folder.file(CHECKPOINT))
        loaded = load(args.checkpoint, overrides=folder.overrides)
        parameters = sum(each.numel() for each in loaded.model.parameters())
        report = export(args, folder, loaded)
        _check_subwords(text, args, folder)
        Path(folder.file(SETTINGS)).write_text(folder.with_digests().settings(), "utf-8")
        name = os.path.basename(os.path.abspath(args.out_dir))
        content = card(name, folder, state, parameters, args.about, scores, report)
        Path(folder.file(CARD)).write_text(content, "utf-8")
    return report


def check(path: str) -> int:
    """Check that a folder's files have not changed since they were packed, and can be read.

    Returns:
        the number of files that were compared with their digests.
    """
    folder = read_model_folder(path, "pack --check")
    folder.check(path, *{name.split("/")[0] for name in folder.digests})
    if folder.checkpoint is not None:
        load_folder(folder, "cpu")
    if folder.export is not None and folder.task == "translation":
        engine_for(folder, Hardware(), "ctranslate2")
    return len(folder.digests)


def _complete(text: Text, data: str, task: str, state: Checkpoint) -> Text:
    """The text settings of the folder; languages come from flags, the checkpoint or the data."""
    saved, name = task_of(state), SUBWORD_FILES[text.subwords]
    source = text.source_lang or option(saved, "source_lang")
    target = text.target_lang or option(saved, "target_lang")
    if task == "translation" and None in (source, target):
        source, target = data_utils.infer_language_pair(data)
    if task == "translation" and None in (source, target):
        raise UsageError(
            f"--data {data}: has no data whose file names tell the languages; give "
            "--source-lang and --target-lang"
        )
    other = text.target_subword_file
    with_two = [kind for kind, file in SUBWORD_FILES.items() if file not in (None, "tokenizer")]
    if other is not None and (text.subwords not in with_two or task != "translation"):
        raise UsageError(
            f"--target-subword-file {other}: is only for translation with --subwords "
            f"{' or '.join(with_two)}; drop it"
        )
    text = text._replace(source_lang=source, target_lang=target, subword_file=name)
    return text if other is None else text._replace(target_subword_file=f"target.{name}")


def _copy_dictionaries(data: str, folder: ModelFolder) -> None:
    files = [file for part in ("", "*/") for file in sorted(Path(data).glob(f"{part}dict.*txt"))]
    names = [str(file.relative_to(data)) for file in files]
    missing = [name for name in folder.dictionaries if name not in names]
    if missing:
        raise UsageError(
            f"--data {data}: has no {missing[0]}; give the folder that the model was trained on"
        )
    for name in names:
        os.makedirs(os.path.dirname(folder.file(name)), exist_ok=True)
        _copy(os.path.join(data, name), folder.file(name), "--data")


def _copy_subwords(source: str, folder: ModelFolder) -> None:
    target = folder.file(str(folder.text.subword_file))
    if folder.text.subwords != "transformers":
        _copy(source, target, "--subword-file")
        return
    theirs = transformers_tokenizer.dictionary(source)  # refuses a folder without a tokenizer
    ours = folder.file("dict.txt" if folder.head is None else os.path.join("input0", "dict.txt"))
    if os.path.isfile(ours) and _symbols(theirs) != _symbols(_read(ours, "--data")):
        raise UsageError(
            f"--subword-file {source}: its symbols are not those of the model's dictionary; give "
            "the tokenizer with which the model was trained"
        )
    os.mkdir(target)
    for name in transformers_tokenizer.FILES:
        if os.path.isfile(os.path.join(source, name)):
            _copy(os.path.join(source, name), os.path.join(target, name), "--subword-file")


def _check_subwords(text: Text, args: Namespace, folder: ModelFolder) -> None:
    """Read the subwords; without ``--trust-subwords``, refuse those of another model."""
    kind, target = text.subwords, text.target_subword_file
    sides = [("--subword-file", text.subword_file)]
    if folder.task == "translation":
        sides.append(sides[0] if target is None else ("--target-subword-file", target))
    for name, (flag, file) in zip(folder.dictionaries, sides):
        subwords, path = KINDS[kind](file), os.path.join(args.data, name)
        if not args.trust_subwords:
            shown = f"--subwords {kind}" if file is None else f"{flag} {file}"
            check_subwords(kind, subwords, _symbols(_read(path, "--data")), _texts(path), shown)


def check_subwords(
    kind: str,
    subwords: Subwords,
    symbols: Sequence[str],
    texts: Sequence[List[str]],
    shown: str,
) -> None:
    """Refuse subwords that do not fit a model.

    They do not fit if many symbols of the model's dictionary are not among them, or if they split
    the model's texts into many symbols that the dictionary lacks.

    Args:
        kind: one of :data:`~fairseq_posenc.serving.subwords.SUBWORDS`, which made *subwords*.
        symbols: the symbols of the model's dictionary, without fairseq's own.
        texts: some texts of the model's data, as lists of symbols; may be empty.
        shown: the flag that sets the subwords, with its value.
    """
    known, limit = set(symbols), _STRANGE * len(symbols)
    words = (lambda text: unmarked(" ".join(text))) if "marked" in kind else subwords.join
    again = [symbol for text in texts for symbol in subwords.split(words(text))]
    for split, fits, fault in (
        (symbols, subwords.makes, "of the dictionary's symbols are not among these subwords"),
        (
            again,
            known.__contains__,
            "of the symbols into which these subwords split the data are not in the dictionary",
        ),
    ):
        strange = [symbol for symbol in split if not fits(symbol)]
        if len(strange) > _STRANGE * len(split):
            instead = "the subwords used in training"
            for theirs, mark in _MARKS.items():
                if kind not in theirs and sum(map(bool, map(mark.match, symbols))) > limit:
                    instead = f"--subwords {theirs} and its file"
            raise UsageError(
                f"{shown}: {len(strange) / len(split):.0%} {fault} "
                f"({', '.join(list(dict.fromkeys(strange))[:3])}); give {instead}, or "
                "--trust-subwords to pack these"
            )


def _texts(dictionary: str) -> List[List[str]]:
    """Some texts of the data beside a dictionary, as symbols; skips texts with unknown symbols."""
    folder, name = os.path.split(dictionary)
    side = name[len("dict") : -len("txt")]  # ".en.", or "." if the data have no sides
    files = sorted(Path(folder).glob(f"*{side}idx"))
    if not files:
        return []
    symbols, path = Dictionary.load(dictionary), str(files[0].with_suffix(""))
    try:
        data = data_utils.load_indexed_dataset(path, symbols)
        some = [data[n][:_LONGEST] for n in range(min(_TEXTS, len(data)))]
    except Exception as error:  # fairseq asserts, or reads nonsense
        raise UsageError(
            f"--data {files[0]}: cannot be read ({error}); binarise the data again, or give "
            "--trust-subwords"
        ) from error
    texts = [symbols.string(numbers).split() for numbers in some]
    return [text for text in texts if symbols.unk_word not in text]


def _symbols(dictionary: str) -> List[str]:
    """The symbols in the text of a dict.txt, without fairseq's fillers ``madeupword…``."""
    found = [line.rsplit(" ", 1)[0] for line in dictionary.split("\n") if line]
    return [symbol for symbol in found if not symbol.startswith("madeupword")]


def _copy(source: str, target: str, flag: str) -> None:
    try:
        shutil.copyfile(source, target)
    except FileNotFoundError as error:
        raise UsageError(f"{flag} {source}: there is no such file") from error


def _read(path: str, flag: str) -> str:
    return "\n".join(read_lines(path, f"{flag} {path}"))


def head_of(
    state: Checkpoint, task: str, data: str, bounds: Optional[Sequence[float]] = None
) -> Optional[Head]:
    """The head that ``predict`` uses: the task's head, or the only head of an imported model.

    ``label/dict.txt`` in *data*, the training data, names the classes; without this file, they are
    numbers.  *bounds* are the values that 0 and 1 stand for in a regression.
    """
    if task not in ("sentence_prediction", "masked_lm"):
        return None
    found, settings = heads_of(state), task_of(state)
    name = option(settings, "classification_head_name") or next(iter(found), None)
    if name not in found or (task == "masked_lm" and len(found) > 1):
        return None
    classes = found[name]
    # the number of texts per example
    inputs = sum(os.path.isdir(os.path.join(data, name)) for name in ("input0", "input1")) or None
    if option(settings, "regression_target", False):
        values = ["value"] if classes == 1 else [f"value{n}" for n in range(1, classes + 1)]
        low, high = bounds or (0.0, 1.0)
        return Head(name, values, True, inputs, (low, high))
    labels = named_labels(os.path.join(data, "label", "dict.txt"), classes)
    return Head(name, labels or [str(n) for n in range(classes)], False, inputs)
