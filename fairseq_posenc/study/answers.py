"""The answers of a fine-tuned model to a validation set: ``label<TAB>prediction``, line by line.

    python -m fairseq_posenc.study.answers CHECKPOINT DATA --output answers.tsv

fairseq has no command that writes them; comparing systems example by example needs them.
"""

from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.files import replace_file
from fairseq_posenc.flags.usage import documented_parser
from fairseq_posenc.study.logs import split_lines

_HEAD = "sentence_classification_head"


def read_answers(path: Path) -> List[Tuple[str, str]]:
    """Labels and predictions, in the order of the validation set.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        return pairs_of(split_lines(path.read_text(encoding="utf-8")), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: is not a table of answers ({error})") from error


def pairs_of(lines: Sequence[str], where: str) -> List[Tuple[str, str]]:
    """The label and the prediction of each line.

    Args:
        where: the place of the lines, at the start of messages.

    Raises:
        UsageError: a line is no such pair.
    """
    try:
        return [(label, answer) for label, answer in (line.split("\t") for line in lines)]
    except ValueError as error:
        raise UsageError(f"{where}: is not a table of answers ({error})") from error


def answers(checkpoint: str, data: str, subset: str, cpu: bool) -> List[Tuple[str, str]]:
    """Label and prediction of every example, in the order of the data.

    Args:
        cpu: do not use a GPU.
    """
    import torch

    from fairseq_posenc.checkpoints.loader import load, usable_device

    loaded = load(checkpoint, overrides={"data": data}, device=usable_device(cpu))
    model, task = loaded.model, loaded.task
    task.load_dataset(subset)
    batches = task.get_batch_iterator(
        task.dataset(subset), max_sentences=32, required_batch_size_multiple=1
    ).next_epoch_itr(shuffle=False)
    numbers = task.cfg.regression_target
    found: Dict[int, Tuple[str, str]] = {}
    for sample in batches:
        sample = loaded.move(sample)
        with torch.no_grad():
            logits, _ = model(
                **sample["net_input"], features_only=True, classification_head_name=_HEAD
            )
        given = sample["target"].view(-1).tolist()
        predicted = (logits.view(-1) if numbers else logits.argmax(dim=-1)).tolist()
        for number, pair in zip(sample["id"].tolist(), zip(given, predicted)):
            found[number] = _shown(pair, None if numbers else task.label_dictionary)
    return [found[number] for number in sorted(found)]


def _shown(pair: Tuple[Any, Any], labels: Optional[Any]) -> Tuple[str, str]:
    if labels is None:
        return repr(pair[0]), repr(pair[1])
    names = labels.symbols[labels.nspecial :]
    return names[pair[0]], names[pair[1]]


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the command line."""
    parser = documented_parser(__doc__, "checkpoint", "data")
    parser.add_argument("--subset", default="valid")
    parser.add_argument("--output", required=True)
    parser.add_argument("--user-dir", help="the plug-in's folder, or one with own encodings")
    parser.add_argument("--cpu", action="store_true")
    args = parser.parse_args(argv)
    from fairseq.utils import import_user_module

    import fairseq_posenc

    fairseq_posenc.register()
    import_user_module(args)
    lines = answers(args.checkpoint, args.data, args.subset, args.cpu)
    with replace_file(args.output, "--output") as partial:
        partial.write_text("".join(f"{a}\t{b}\n" for a, b in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
