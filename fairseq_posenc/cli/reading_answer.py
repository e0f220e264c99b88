"""``fairseq-posenc reading answer``."""

import argparse
import json
import os
from typing import Any, Dict

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.cli.command import Command, add_user_dir, load_plug_in

DESCRIPTION = """\
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
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
        help="no answer if its score exceeds that of the best answer by more",
    )
    add("--batch-size", type=int, default=32, metavar="N", help="windows in a batch (32)")
    add("--device", default="cpu", choices=("cpu", "cuda"), help="(cpu)")
    add_user_dir(parser)


def run(args: argparse.Namespace) -> None:
    """Write the answers."""
    from fairseq_posenc.basics.files import new_folder, refuse_existing

    refuse_existing(args.output)
    if args.batch_size < 1:
        raise UsageError(f"--batch-size {args.batch_size}: must be at least 1")
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


COMMAND = Command(
    "answer", "answer questions with a fine-tuned model", DESCRIPTION, add_arguments, run
)
