"""The commands for documents, and the flags that say what a model of documents is given."""

import argparse
from typing import Optional

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import json_text
from fairseq_posenc.cli.command import (
    argument,
    at_least,
    command,
    device,
    load_plug_in,
    number,
    place,
    several,
    user_dir,
)
from fairseq_posenc.text.documents import SIDES, Context, contexts_of

_SIDES = argument(
    "--context-sides",
    choices=tuple(SIDES),
    help="where the sentences before are: source, target or both (both)",
)
#: The arguments for the context of a model that is used.
given_context = several(
    argument(
        "--context",
        metavar="N",
        help="for a model trained on documents: how many earlier sentences it reads with each "
        "sentence, or whole for whole documents",
    ),
    _SIDES,
)


def context_from(args: argparse.Namespace) -> Optional[Context]:
    """The context that the arguments say, or None.

    Raises:
        UsageError: they name several, or sides alone.
    """
    if args.context is None:
        if args.context_sides is not None:
            raise UsageError(f"--context-sides {args.context_sides}: give --context, too")
        return None
    found = contexts_of(args.context)
    if len(found) > 1:
        raise UsageError(f"--context {args.context}: a model is used with one context; give one")
    return _checked(Context(found[0], args.context_sides or "both"), args.context)


def _checked(context: Context, given: str) -> Context:
    if context.sentences is None and context.sides != "both":
        raise UsageError(
            f"--context {given}: whole documents are on both sides; drop --context-sides "
            f"{context.sides}"
        )
    return context


@command(
    "add-context",
    "make samples of the sentences of documents",
    argument(
        "--context",
        required=True,
        metavar="N,...",
        help="how many sentences before a sentence its sample has, or whole for samples of whole "
        "documents; several, such as 0,3, are written one after the other",
    ),
    _SIDES,
    number("--longest", "most tokens of a sample on a side", 1022),
    *map(place, ("SOURCE", "TARGET", "NEW_SOURCE", "NEW_TARGET")),
)
def add_context(args: argparse.Namespace) -> None:
    """Write the sentences of parallel documents, each after the sentences before it.

        fairseq-posenc add-context --context 0,3 train.en train.de context.en context.de

    SOURCE and TARGET have a sentence a line, in the tokens that the model reads, and a blank line
    after each document. Sentences are separated by <brk>. If a context does not fit, its farthest
    sentences are left out on both sides, and counted.
    """
    from fairseq_posenc.text.documents import write_samples

    at_least(args, longest=1)
    contexts, sides = contexts_of(args.context), args.context_sides or "both"
    for count in contexts:
        _checked(Context(count, sides), args.context)
    pairs = ((args.source, args.target), (args.new_source, args.new_target))
    write_samples(*pairs, contexts, sides, args.longest)


@command(
    "score-choices",
    "accuracy of a translation model on a contrastive set",
    argument("--model", required=True, metavar="FOLDER", help="a model folder"),
    argument(
        "--choices", required=True, metavar="FILE", help="JSON like ContraPro's contrapro.json"
    ),
    argument(
        "--documents",
        required=True,
        metavar="DIR",
        help="the documents of the choices, NAME.SOURCE_LANG and NAME.TARGET_LANG at any depth",
    ),
    given_context,
    argument("--json", metavar="FILE", help="also write accuracies and scores to this file"),
    device(),
    user_dir(),
)
def score_choices(args: argparse.Namespace) -> None:
    """Score the right translation and the wrong variants of each sentence by forced decoding.

        fairseq-posenc score-choices --model FOLDER --choices contrapro.json --documents documents

    A choice is right if the right translation is more probable than each variant. The context is
    the folder's, unless --context says another; 0 scores each sentence alone, and whole scores it
    after all sentences before.
    """
    from fairseq_posenc.serving.model_folder import context_of, read_model_folder

    folder = read_model_folder(args.model)
    if folder.task != "translation":
        raise UsageError(f"--model {args.model}: is no translation model")
    context = context_of(folder, context_from(args), "--context")
    load_plug_in(args.user_dir)
    import contextlib
    import sys

    from fairseq_posenc.basics.lines import write_text
    from fairseq_posenc.basics.tables import markdown_table
    from fairseq_posenc.serving import choices as sets

    languages = (str(folder.text.source_lang), str(folder.text.target_lang))
    with contextlib.ExitStack() as stack:  # a file that cannot be written is refused first
        stream = args.json and stack.enter_context(write_text(args.json, "--json"))
        choices = sets.read_choices(args.choices, args.documents, *languages)
        model = sets.TranslationModel(folder, args.device)
        scores, dropped = sets.score_choices(model, choices, context)
        found = sets.accuracies(choices, map(sets.is_right, scores))
        if stream:
            stream.write(json_text({"accuracies": found, "scores": scores}))
    if dropped:
        print(f"{dropped} sentences of context did not fit and were left out", file=sys.stderr)
    rows = [[name, f"{one['accuracy']:.1f}", str(one["choices"])] for name, one in found.items()]
    print("\n".join(markdown_table(["choices", "right (%)", "number"], rows)))


COMMANDS = (add_context, score_choices)
