"""``fairseq-posenc reading``: prepares and answers questions on passages, and scores answers."""

import argparse
import os
import shutil
from typing import Any

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.basics.lines import json_text
from fairseq_posenc.cli.command import (
    DEVICE,
    argument,
    command,
    group,
    load_plug_in,
    number,
    place,
    switch,
    user_dir,
)
from fairseq_posenc.cli.packing import prepared_text, text_from
from fairseq_posenc.packs.comprehension.scores import RULES

_DATA = place("DATA", "a folder that `reading prepare` wrote")
_RULES = argument(
    "--rules", choices=tuple(RULES), default="squad", help="rules for scoring answers (squad)"
)


@command(
    "prepare",
    "convert published JSON files to data for fairseq-train",
    argument("out_dir", metavar="DATA", help="the folder to write"),
    argument("--dict", required=True, metavar="FILE", help="dict.txt of the model"),
    argument("--train", metavar="FILE", help="questions to train on, with answers"),
    argument("--valid", metavar="FILE", help="questions to validate on, with answers"),
    argument("--test", metavar="FILE", help="questions to answer; answers in the file are ignored"),
    _RULES,
    switch("--leave-out-wrong", "leave out training questions whose answer is not at answer_start"),
    argument("--source-lang", metavar="LANG", help="language of the text, for Moses (en)"),
    *prepared_text,
)
def prepare(args: argparse.Namespace) -> None:
    """Split questions and passages of SQuAD 1.1, SQuAD 2.0 or CMRC 2018 into a model's symbols.

        fairseq-posenc reading prepare DATA --dict dict.txt --train train-v2.0.json \\
            --valid dev-v2.0.json --tokenizer moses --subwords subword-nmt --subword-file codes

    The flags for tokenisation and subwords are the same as for `fairseq-posenc pack`. DATA records
    which characters each token stands for, whichever tool split the text. So answers become spans
    of tokens, and predicted spans become answers. Train on DATA with --task span_prediction.
    """
    from fairseq_posenc.basics.files import new_folder, refuse_existing

    names = [name for name in ("train", "valid", "test") if getattr(args, name)]
    if not names:
        raise UsageError("reading prepare: give --train, --valid or --test")
    text = text_from(args)
    refuse_existing(args.out_dir)
    from fairseq_posenc.packs.comprehension.questions import read_questions

    # only training needs the positions of answers
    misplaced = dict.fromkeys(names, "keep")
    misplaced["train"] = "leave out" if args.leave_out_wrong else "refuse"
    readings = {
        name: read_questions(getattr(args, name), name != "test", misplaced[name]) for name in names
    }
    load_plug_in()
    from fairseq_posenc.checkpoints.loader import read_dictionary
    from fairseq_posenc.packs.comprehension.data import Settings, write_settings, write_split
    from fairseq_posenc.serving.preparation import Preparation

    preparation = Preparation(text)
    dictionary = read_dictionary(args.dict)
    with new_folder(args.out_dir) as folder:
        for name, reading in readings.items():
            inexact = write_split(folder, name, reading, preparation, dictionary)
            print(
                f"{getattr(args, name)}: {len(reading.questions)} questions on "
                f"{len(reading.passages)} passages, "
                f"{sum(not q.answers for q in reading.questions)} without an answer; "
                f"{inexact} answers begin or end within a token; "
                f"{len(reading.misplaced)} not at answer_start"
                + (" (left out)" if name == "train" else "")
            )
        labelled = [reading for name, reading in readings.items() if name != "test"]
        unanswerable = any(not q.answers for reading in labelled for q in reading.questions)
        write_settings(folder, Settings(args.rules, unanswerable))
        shutil.copyfile(args.dict, os.path.join(folder, "dict.txt"))
    print("wrote " + args.out_dir)


@command(
    "windows",
    "count the windows of a training set",
    _DATA,
    argument("flags", metavar="FLAGS", nargs=argparse.REMAINDER, help="flags for fairseq-train"),
)
def windows(args: argparse.Namespace) -> None:
    """Print the number of windows of the training set, to choose the number of updates.

        fairseq-posenc reading windows DATA --max-positions 384 --stride 128 --separator-token 2

    With --batch-size B, the number of updates in an epoch is this number / B, rounded up. FLAGS can
    be all flags of the training command; only those of --task span_prediction are used.
    """
    load_plug_in()
    from fairseq.dataclass.utils import gen_parser_from_dataclass

    from fairseq_posenc.basics.errors import OneLineParser
    from fairseq_posenc.packs.comprehension.span_prediction import (
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
            f"{args.data}: has no training set; give a folder that `reading prepare --train` wrote"
        ) from error


_ANSWER = {
    "max_positions": "maximum number of tokens in a window",
    "stride": "tokens between the starts of neighbouring windows",
    "longest_answer": "maximum number of tokens in an answer",
    "longest_question": "cut questions off after this many tokens",
    "n_best": "answers to keep for each question",
}


@command(
    "answer",
    "answer questions with a fine-tuned model",
    place("CHECKPOINT", "a checkpoint trained with --task span_prediction"),
    _DATA,
    argument("--split", default="valid", metavar="NAME", help="train, valid or test (valid)"),
    argument("--output", required=True, metavar="FOLDER", help="the folder to write"),
    *(number(flag_of(name), what) for name, what in _ANSWER.items()),
    number(
        "--no-answer-threshold",
        "predict no answer if the null score difference or classifier score is above this",
        kind=float,
    ),
    number("--batch-size", "windows in a batch", 32, at_least=1),
    DEVICE,
    user_dir(),
)
def answer(args: argparse.Namespace) -> None:
    """Answer the questions of a data folder, and write the answers as JSON.

        fairseq-posenc reading answer squad/checkpoint_best.pt DATA --output answers

    writes these files to the folder:

        predictions.json   for each id, the text of the answer, empty if none is predicted
        na_prob.json       for each id, the probability that there is no answer
        nbest.json         for each id, the best answers with the sums of their logits
        scores.json        exact match and F1, also printed; not for --split test

    Window size, stride and maximum lengths are those of the training unless flags set them here.
    """
    from fairseq_posenc.basics.files import new_folder, refuse_existing

    refuse_existing(args.output)
    load_plug_in(args.user_dir)
    from fairseq_posenc.packs.comprehension.answering import answer_questions

    flags = {name: getattr(args, name) for name in (*_ANSWER, "no_answer_threshold")}
    overrides = {name: value for name, value in flags.items() if value is not None}
    overrides.update(data=os.path.abspath(args.data))
    files = answer_questions(args.checkpoint, overrides, args.split, args.batch_size, args.device)
    with new_folder(args.output) as folder:
        for name, content in files.items():
            with open(os.path.join(folder, f"{name}.json"), "w", encoding="utf-8") as stream:
                stream.write(json_text(content))
    if "scores" in files:
        print(json_text(files["scores"]), end="")


@command(
    "score",
    "compute exact match and F1 of predictions",
    place("QUESTIONS", "the published file of questions, with answers"),
    place("PREDICTIONS", "a JSON file that maps each id to the text of its answer"),
    _RULES,
    argument(
        "--na-prob", metavar="FILE", help="a JSON file with the probability of no answer per id"
    ),
    number("--na-prob-thresh", "no-answer probability above which an answer is empty", 1.0, float),
)
def score(args: argparse.Namespace) -> None:
    """Print exact match and F1 of predictions as JSON, in percent.

        fairseq-posenc reading score dev-v2.0.json predictions.json --na-prob na_prob.json
        fairseq-posenc reading score cmrc2018_dev.json predictions.json --rules cmrc

    PREDICTIONS and --na-prob have the format of the published scripts. With --na-prob, the best
    thresholds are printed as well. A question without a prediction counts as answered wrongly.
    """
    from fairseq_posenc.basics.lines import read_json_object
    from fairseq_posenc.packs.comprehension.questions import read_questions
    from fairseq_posenc.packs.comprehension.scores import check_values, scores

    answers = read_questions(args.questions, misplaced="keep").answers
    predictions = read_json_object(args.predictions, args.predictions, "give a JSON file")
    no_answer = None
    if args.na_prob:
        no_answer = read_json_object(args.na_prob, f"--na-prob {args.na_prob}", "give a JSON file")
    check_values(args.predictions, predictions, answers, args.questions, numbers=False)
    check_values(args.na_prob, no_answer or {}, answers, args.questions, numbers=True)
    result = scores(predictions, answers, RULES[args.rules], no_answer, args.na_prob_thresh)
    print(json_text(result), end="")


COMMANDS = (
    group(
        "reading",
        "questions on passages (SQuAD, CMRC 2018)",
        "Prepare data for --task span_prediction, answer questions with a trained model, and\n"
        "score answers like the scripts that were published with the data sets.",
        "STEP",
        (prepare, windows, answer, score),
    ),
)
