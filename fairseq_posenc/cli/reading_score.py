"""``fairseq-posenc reading score``."""

import argparse
import json

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli.command import Command

DESCRIPTION = """\
Exact match and F1 of predictions in the published format, in percent, as JSON.

    fairseq-posenc reading score dev-v2.0.json predictions.json --na-prob na_prob.json
    fairseq-posenc reading score cmrc2018_dev.json predictions.json --rules cmrc

With --na-prob, also the thresholds that would have been best. A question without a prediction
counts as answered wrongly."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
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


def run(args: argparse.Namespace) -> None:
    """Print the scores."""
    from fairseq_posenc.basics.json_object import read_json_object
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


COMMAND = Command("score", "exact match and F1 of predictions", DESCRIPTION, add_arguments, run)
