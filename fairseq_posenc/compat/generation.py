"""Decoding, and the perplexity of language models."""

from typing import Any, Callable, Dict, Iterator, Optional, Sequence

from fairseq.data import FairseqDataset
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.utils import convert_padding_direction
from omegaconf import OmegaConf
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError


def score_every_token(eval_lm_dataloader: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    """Refuse to report a perplexity if some text would be skipped, unless a flag allows it.

    Measured: blocks longer than the model accepts (``--tokens-per-sample`` is 1,024 by default) are
    skipped with a warning, and ``fairseq-eval-lm`` ends with "Evaluated 0 tokens", a perplexity of
    1.00 and status 0; or, if the last block is short enough, with the perplexity of this block.
    """

    def wrapper(
        task: LanguageModelingTask, dataset: FairseqDataset, *args: object, **kwargs: object
    ) -> Iterator[Any]:
        # (max_tokens, batch_size, max_positions) are the first three positional arguments
        longest = kwargs.get("max_positions", args[2] if len(args) > 2 else None)
        sizes = [dataset.size(index) for index in range(len(dataset))]
        too_long = 0 if longest is None else sum(size > longest for size in sizes)
        skip = _skips_invalid_sizes(task)
        if too_long and not skip:
            override = f"{{'max_target_positions': {max(sizes)}}}"
            raise UsageError(
                f"fairseq-eval-lm: {too_long} of {len(sizes)} blocks are longer than the {longest} "
                "positions of the model and would not be scored; give --tokens-per-sample "
                f"{longest} or less (with --sample-break-mode none), or, for a model without a "
                f'table of positions, --model-overrides "{override}"; or skip them with '
                "--skip-invalid-size-inputs-valid-test"
            )
        batches = eval_lm_dataloader(task, dataset, *args, **kwargs)
        if len(batches) == 0:
            raise UsageError(
                "fairseq-eval-lm: there is no token to score; the data of --gen-subset is empty"
                + (", or all of its blocks are skipped as too long" if skip else "")
            )
        return batches

    return wrapper


def _skips_invalid_sizes(task: LanguageModelingTask) -> bool:
    """True if the command of *task* was given ``--skip-invalid-size-inputs-valid-test``."""
    settings: Any = task.args  # part of the command's configuration
    command = settings._get_parent() if OmegaConf.is_config(settings) else None
    dataset = getattr(command, "dataset", None)
    return bool(getattr(dataset, "skip_invalid_size_inputs_valid_test", False))


def pad_prompts_right(inference_step: Callable[..., Any]) -> Callable[..., Any]:
    """Move padding on the left of a prompt to the right before generation.

    Measured: fairseq's search treats padding as the end of a prompt, so it generates text in place
    of the padding and then appends the prompt.  (``fairseq-interactive`` pads on the right; batches
    from other sources may be padded on the left.)
    """

    def wrapper(
        task: LanguageModelingTask,
        generator: SequenceGenerator,
        models: Sequence[nn.Module],
        sample: Dict[str, Any],
        prefix_tokens: Optional[Tensor] = None,
        *args: object,
        **kwargs: object,
    ) -> Any:
        def right(tokens: Tensor) -> Tensor:
            return convert_padding_direction(
                tokens, task.source_dictionary.pad(), left_to_right=True
            )

        net_input = dict(sample["net_input"], src_tokens=right(sample["net_input"]["src_tokens"]))
        sample = dict(sample, net_input=net_input)
        prefix_tokens = None if prefix_tokens is None else right(prefix_tokens)
        return inference_step(task, generator, models, sample, prefix_tokens, *args, **kwargs)

    return wrapper


def diverse_beams_by_row(search_step: Callable[..., Any]) -> Callable[..., Any]:
    """Tell diverse beam search in which row of the batch each sentence is.

    Measured: the generator passes the sentences' numbers in the data set, but the search uses them
    as rows of a table for the batch, so ``--diverse-beam-groups`` stops with an IndexError, or uses
    the penalties of another sentence.  Numbers that already are rows stay the same.
    """

    def wrapper(
        search: Any,
        step: int,
        lprobs: Tensor,
        scores: Tensor,
        prev_output_tokens: Optional[Tensor] = None,
        original_batch_idxs: Optional[Tensor] = None,
    ) -> Any:
        rows = original_batch_idxs
        if rows is not None:
            if step == 0:
                search.first_batch_idxs = rows
            # finished sentences have left the batch
            rows = (rows[:, None] == search.first_batch_idxs).int().argmax(dim=1)
        return search_step(search, step, lprobs, scores, prev_output_tokens, rows)

    return wrapper
