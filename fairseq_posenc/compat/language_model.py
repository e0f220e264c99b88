"""``fairseq-eval-lm``: what is not scored is an error."""

from typing import Any, Callable, Iterator

from fairseq.tasks.language_modeling import LanguageModelingTask

from fairseq_posenc.compat.patching import wrap
from fairseq_posenc.errors import UsageError


def eval_lm_needs_tokens() -> None:
    """Refuse to report a perplexity of text that was left out.

    Measured: blocks longer than the model takes (``--tokens-per-sample`` is 1,024 unless
    given) are skipped with a warning, and ``fairseq-eval-lm`` ends with "Evaluated 0
    tokens", a perplexity of 1.00 and status 0; or, when the last block is short enough,
    with the perplexity of that alone.
    """
    wrap(LanguageModelingTask, "eval_lm_dataloader", _of_whole_set)


def _of_whole_set(eval_lm_dataloader: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    def wrapper(task: Any, dataset: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        # (max_tokens, batch_size, max_positions) are the first three positional arguments
        longest = kwargs.get("max_positions", args[2] if len(args) > 2 else None)
        sizes = [dataset.size(index) for index in range(len(dataset))]
        if longest is not None and any(size > longest for size in sizes):
            too_long = sum(size > longest for size in sizes)
            raise UsageError(
                f"fairseq-eval-lm: {too_long} of {len(sizes)} blocks are longer than the {longest} "
                "positions of the model and would not be scored; give --tokens-per-sample "
                f"{longest} or less (with --sample-break-mode none)"
            )
        batches = eval_lm_dataloader(task, dataset, *args, **kwargs)
        if len(batches) == 0:
            raise UsageError(
                "fairseq-eval-lm: there is no token to score; the data of --gen-subset is empty"
            )
        return batches

    return wrapper
