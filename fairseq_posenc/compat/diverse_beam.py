"""``--diverse-beam-groups``."""

from typing import Any, Callable, Optional

from fairseq.search import DiverseBeamSearch
from torch import Tensor

from fairseq_posenc.compat.patching import wrap


def diverse_beam_groups() -> None:
    """Give diverse beam search the rows of its batch.

    Measured: the generator passes the sentences' numbers in the data set, which the search uses as
    rows of a table of the batch, so ``--diverse-beam-groups`` stops with an IndexError, or uses
    another sentence's penalties.  Rows are not changed by this.
    """
    wrap(DiverseBeamSearch, "step", _by_row)


def _by_row(search_step: Callable[..., Any]) -> Callable[..., Any]:
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
