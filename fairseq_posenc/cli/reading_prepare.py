"""``fairseq-posenc reading prepare``."""

import argparse
import os
import shutil

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli.command import Command, load_plug_in
from fairseq_posenc.cli.text import add_text_arguments, check_text_arguments

DESCRIPTION = """\
Split the questions and passages of SQuAD 1.1, SQuAD 2.0 or CMRC 2018 into the symbols of a model.

    fairseq-posenc reading prepare DATA --dict dict.txt --train train-v2.0.json \\
        --valid dev-v2.0.json --tokenizer moses --subwords subword-nmt --subword-file codes

The flags of the text are those of `pack`. Each token remembers its characters, whatever split the
text, so answers become spans of tokens and spans of tokens answers. DATA is then what
fairseq-train --task span_prediction takes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add = parser.add_argument
    add("out_dir", metavar="DATA", help="the folder to write")
    add("--dict", required=True, metavar="FILE", help="dict.txt of the model")
    add("--train", metavar="FILE", help="questions to train on, with answers")
    add("--valid", metavar="FILE", help="questions to validate on, with answers")
    add("--test", metavar="FILE", help="questions to answer; answers are ignored")
    add("--rules", choices=("squad", "cmrc"), default="squad", help="of the scores (squad)")
    add(
        "--leave-out-wrong",
        action="store_true",
        help="leave out training questions whose answer is not where the file says",
    )
    add("--source-lang", default="en", metavar="LANG", help="language, for Moses (en)")
    add_text_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Write a data folder."""
    from fairseq_posenc.basics.files import new_folder, refuse_existing

    names = [name for name in ("train", "valid", "test") if getattr(args, name)]
    if not names:
        raise UsageError("reading prepare: give --train, --valid or --test")
    check_text_arguments(args)
    refuse_existing(args.out_dir)
    from fairseq_posenc.training.reading.questions import read_questions

    # a place is needed to train on an answer, not to score one
    misplaced = dict.fromkeys(names, "keep")
    misplaced["train"] = "leave out" if args.leave_out_wrong else "refuse"
    found = {
        name: read_questions(getattr(args, name), name != "test", misplaced[name]) for name in names
    }
    load_plug_in()
    from fairseq.data import Dictionary

    from fairseq_posenc.text.preparation import Preparation, Text
    from fairseq_posenc.training.reading.data import Settings, write_settings, write_split

    if not os.path.isfile(args.dict):
        raise UsageError(f"--dict {args.dict}: no such file; give that of the pre-training")
    file = None if args.subword_file is None else os.path.abspath(args.subword_file)
    if file is not None and not os.path.exists(file):
        raise UsageError(f"--subword-file {args.subword_file}: no such file")
    text = Text(
        args.source_lang,
        None,
        args.tokenizer,
        args.dash_splits,
        args.subwords,
        file,
        args.lowercase,
    )
    preparation = Preparation(text)
    dictionary = Dictionary.load(args.dict)
    dictionary.add_symbol("<mask>")
    surfaces = {dictionary.unk_word: ""}  # it stands for any text

    def surface_of(token: str) -> str:
        if token not in surfaces:
            surfaces[token] = preparation.words([token])
        return surfaces[token]

    with new_folder(args.out_dir) as folder:
        for name, reading in found.items():
            written = write_split(folder, name, reading, preparation.source, surface_of, dictionary)
            print(
                f"{getattr(args, name)}: {written.questions} questions on {written.passages} "
                f"passages, {sum(not q.answers for q in reading.questions)} without an answer; "
                f"{written.inexact} answers begin or end within a token; "
                f"{len(reading.misplaced)} not where the file says"
                + (" (left out)" if name == "train" else "")
            )
        labelled = [reading for name, reading in found.items() if name != "test"]
        unanswerable = any(not q.answers for reading in labelled for q in reading.questions)
        write_settings(folder, Settings(args.rules, unanswerable))
        shutil.copyfile(args.dict, os.path.join(folder, "dict.txt"))
    print("wrote " + args.out_dir)


COMMAND = Command(
    "prepare", "from the published JSON to data for fairseq-train", DESCRIPTION, add_arguments, run
)
