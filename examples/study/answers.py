"""Print the answers of a fine-tuned model: ``label<TAB>prediction`` for each example.

    python answers.py DATA --path CHECKPOINT --user-dir DIR >answers.tsv

fairseq has no command for this, but comparing systems example by example needs it.
"""

import sys
from typing import Dict, Tuple

import torch
from fairseq import checkpoint_utils, options, utils


def main() -> None:
    """Run the command line, which has the flags of fairseq-validate."""
    args = options.parse_args_and_arch(options.get_validation_parser())
    utils.import_user_module(args)
    (model,), cfg, task = checkpoint_utils.load_model_ensemble_and_task(
        [args.path], arg_overrides={"data": args.data}
    )
    cuda = torch.cuda.is_available() and not args.cpu
    model = (model.cuda() if cuda else model).eval()
    task.load_dataset(args.valid_subset)
    batches = task.get_batch_iterator(
        task.dataset(args.valid_subset), max_sentences=32, required_batch_size_multiple=1
    ).next_epoch_itr(shuffle=False)
    numbers = cfg.task.regression_target
    found: Dict[int, Tuple[str, str]] = {}
    for sample in batches:
        sample = utils.move_to_cuda(sample) if cuda else sample
        with torch.no_grad():
            logits, _ = model(
                **sample["net_input"],
                features_only=True,
                classification_head_name="sentence_classification_head",
            )
        right = sample["target"].view(-1).tolist()
        given = (logits.view(-1) if numbers else logits.argmax(dim=-1)).tolist()
        labels = (
            None if numbers else task.label_dictionary.symbols[task.label_dictionary.nspecial :]
        )
        for number, pair in zip(sample["id"].tolist(), zip(right, given)):
            shown = map(repr, pair) if labels is None else (labels[one] for one in pair)
            found[number] = tuple(shown)
    sys.stdout.writelines("\t".join(found[number]) + "\n" for number in sorted(found))


if __name__ == "__main__":
    main()
