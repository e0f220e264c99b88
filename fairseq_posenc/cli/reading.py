"""``fairseq-posenc reading``: questions that are answered by a span of a passage."""

import argparse
import json
import os
import shutil
from typing import Any, Dict

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli.command import Command, add_commands, add_user_dir, at_least, load_plug_in
from fairseq_posenc.cli.text import add_text_arguments, text_from

PREPARE = """\
Split the questions and passages of SQuAD 1.1, SQuAD 2.0 or CMRC 2018 into the symbols of a model.

    fairseq-posenc reading prepare DATA --dict dict.txt --train train-v2.0.json \\
        --valid dev-v2.0.json --tokenizer moses --subwords subword-nmt --subword-file codes

The flags of the text are those of `pack`. Each token remembers its characters, whatever split the
text, so answers become spans of tokens and spans of tokens answers. DATA is then what
fairseq-train --task span_prediction takes."""


def add_prepare(parser: argparse.ArgumentParser) -> None:
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
    add("--source-lang", metavar="LANG", help="language, for Moses (en)")
    add_text_arguments(parser)


def prepare(args: argparse.Namespace) -> None:
    """Write a data folder."""
    from fairseq_posenc.basics.files import new_folder, refuse_existing

    names = [name for name in ("train", "valid", "test") if getattr(args, name)]
    if not names:
        raise UsageError("reading prepare: give --train, --valid or --test")
    text = text_from(args)
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

    from fairseq_posenc.text.preparation import Preparation
    from fairseq_posenc.training.reading.alignment import surface_reader
    from fairseq_posenc.training.reading.data import Settings, write_settings, write_split

    if not os.path.isfile(args.dict):
        raise UsageError(f"--dict {args.dict}: no such file; give that of the pre-training")
    if text.subword_file is not None and not os.path.exists(text.subword_file):
        raise UsageError(f"--subword-file {text.subword_file}: no such file")
    preparation = Preparation(text)
    dictionary = Dictionary.load(args.dict)
    dictionary.add_symbol("<mask>")
    surface_of = surface_reader(preparation.words, dictionary.unk_word)
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


WINDOWS = """\
Print the number of windows of the training set, to set the length of a training.

    fairseq-posenc reading windows DATA --max-positions 384 --stride 128 --separator-token 2

An epoch with --batch-size B has that number divided by B updates, rounded up. Of the flags, which
may be all those of the training, those of --task span_prediction count."""


def add_windows(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("data", metavar="DATA", help="a folder that `reading prepare` wrote")
    parser.add_argument(
        "flags", metavar="FLAGS", nargs=argparse.REMAINDER, help="flags for fairseq-train"
    )


def count_windows(args: argparse.Namespace) -> None:
    """Print the number."""
    load_plug_in()
    from fairseq.dataclass.utils import gen_parser_from_dataclass

    from fairseq_posenc.flags.usage import OneLineParser
    from fairseq_posenc.training.tasks.span_prediction import (
        SpanPredictionConfig,
        SpanPredictionTask,
    )

    parser = OneLineParser(prog="fairseq-posenc reading windows")
    gen_parser_from_dataclass(parser, SpanPredictionConfig())
    cfg: Any = parser.parse_known_args([args.data, *args.flags])[0]
    cfg.no_shuffle = True
    try:
        print(len(SpanPredictionTask.setup_task(cfg).load_dataset("train")))
    except FileNotFoundError as error:
        raise UsageError(
            f"{args.data}: has no training set; give a folder that `reading prepare` wrote"
        ) from error


ANSWER = """\
Answer the questions of a data folder, and write the answers in the published formats.

    fairseq-posenc reading answer squad/checkpoint_best.pt DATA --output answers

writes to the folder

    predictions.json   the text by id, empty where the question is said to have no answer
    na_prob.json       the probability that there is no answer, by id
    nbest.json         the best answers by id, with their logits
    scores.json        exact match and F1, if the split has answers; they are printed, too

The window, its stride and the lengths are those of the training, unless given here."""

_OVERRIDES = (
    "max_positions",
    "stride",
    "longest_answer",
    "longest_question",
    "n_best",
    "no_answer_threshold",
)


def add_answer(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add = parser.add_argument
    add("checkpoint", metavar="CHECKPOINT", help="trained with --task span_prediction")
    add("data", metavar="DATA", help="a folder that `reading prepare` wrote")
    add("--split", default="valid", metavar="NAME", help="train, valid or test (valid)")
    add("--output", required=True, metavar="FOLDER", help="the folder to write")
    add("--max-positions", type=int, metavar="N", help="tokens of a window")
    add("--stride", type=int, metavar="N", help="tokens from window to window")
    add("--longest-answer", type=int, metavar="N", help="tokens of an answer")
    add("--longest-question", type=int, metavar="N", help="tokens of a question")
    add("--n-best", type=int, metavar="N", help="answers to keep")
    add(
        "--no-answer-threshold",
        type=float,
        metavar="X",
        help="no answer if the score for none exceeds the best answer's by more",
    )
    add("--batch-size", type=int, default=32, metavar="N", help="windows in a batch (32)")
    add("--device", default="cpu", choices=("cpu", "cuda"), help="(cpu)")
    add_user_dir(parser)


def answer(args: argparse.Namespace) -> None:
    """Write the answers."""
    from fairseq_posenc.basics.files import new_folder, refuse_existing

    refuse_existing(args.output)
    at_least(args, batch_size=1)
    load_plug_in(args.user_dir)
    from fairseq_posenc.training.answering import answer_questions

    given = {name: getattr(args, name) for name in _OVERRIDES}
    overrides = {name: value for name, value in given.items() if value is not None}
    overrides.update(data=os.path.abspath(args.data))
    result = answer_questions(args.checkpoint, overrides, args.split, args.batch_size, args.device)
    with new_folder(args.output) as folder:
        _write(folder, "predictions", result.predictions)
        _write(folder, "na_prob", result.no_answer)
        _write(folder, "nbest", result.n_best)
        if result.scores is not None:
            _write(folder, "scores", result.scores)
            print(json.dumps(result.scores, indent=2))


def _write(folder: str, name: str, content: Dict[str, Any]) -> None:
    with open(os.path.join(folder, f"{name}.json"), "w", encoding="utf-8") as stream:
        json.dump(content, stream, ensure_ascii=False, indent=1)
        stream.write("\n")


SCORE = """\
Exact match and F1 of predictions in the published format, in percent, as JSON.

    fairseq-posenc reading score dev-v2.0.json predictions.json --na-prob na_prob.json
    fairseq-posenc reading score cmrc2018_dev.json predictions.json --rules cmrc

With --na-prob, also the thresholds that would have been best. A question without a prediction
counts as answered wrongly."""


def add_score(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add = parser.add_argument
    add("questions", metavar="QUESTIONS", help="the published file, with answers")
    add("predictions", metavar="PREDICTIONS", help="an object with the text for each id")
    add("--rules", choices=("squad", "cmrc"), default="squad", help="(squad)")
    add("--na-prob", metavar="FILE", help="an object with the no-answer probability for each id")
    add(
        "--na-prob-thresh",
        type=float,
        default=1.0,
        metavar="X",
        help="above it, a prediction counts as empty (1.0)",
    )


def score(args: argparse.Namespace) -> None:
    """Print the scores."""
    from fairseq_posenc.basics.lines import read_json_object
    from fairseq_posenc.training.reading.questions import read_questions
    from fairseq_posenc.training.reading.scores import RULES, scores

    answers = read_questions(args.questions, misplaced="keep").answers
    predictions = read_json_object(args.predictions, args.predictions, "give a file of predictions")
    no_answer = None
    if args.na_prob:
        no_answer = read_json_object(args.na_prob, f"--na-prob {args.na_prob}", "give its file")
    for path, values, kind in (
        (args.predictions, predictions, str),
        (args.na_prob, no_answer, float),
    ):
        for key, value in (values or {}).items():
            if key not in answers or not isinstance(value, (kind, int)):
                why = "is no such value" if key in answers else f"is no id in {args.questions}"
                raise UsageError(f"{path}: {key}: {value!r} {why}; give predictions of these data")
    found = scores(predictions, answers, RULES[args.rules], no_answer, args.na_prob_thresh)
    print(json.dumps(found, indent=2))


STEPS = (
    Command(
        "prepare",
        "from the published JSON to data for fairseq-train",
        PREPARE,
        add_prepare,
        prepare,
    ),
    Command("windows", "count the windows of a training set", WINDOWS, add_windows, count_windows),
    Command("answer", "answer questions with a fine-tuned model", ANSWER, add_answer, answer),
    Command("score", "exact match and F1 of predictions", SCORE, add_score, score),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the steps, each with its arguments."""
    add_commands(parser, STEPS, "STEP")


COMMANDS = (
    Command(
        "reading",
        "questions on passages (SQuAD, CMRC 2018): " + ", ".join(step.name for step in STEPS),
        "Prepare the data of --task span_prediction, answer questions with a model trained on\n"
        "them, and score answers as the scripts published with the data do.",
        add_arguments,
        run=None,
    ),
)
