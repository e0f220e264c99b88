"""Workarounds for bugs of fairseq, PyTorch and NumPy versions, one function for each.

:func:`apply` calls them all.  Each is idempotent, and does nothing if its bug is absent.  Functions
of fairseq are replaced in this folder only; ``hooks.py`` does so for other folders.
"""

from fairseq_posenc.compat.atomic_files import atomic_checkpoints
from fairseq_posenc.compat.batching import keep_every_sentence
from fairseq_posenc.compat.clip_norm import clip_where_gradients_are
from fairseq_posenc.compat.data_workers import data_workers_of_each_epoch
from fairseq_posenc.compat.diverse_beam import diverse_beam_groups
from fairseq_posenc.compat.empty_data import empty_data
from fairseq_posenc.compat.fast_path import no_fast_path, stock_layers_take_padding
from fairseq_posenc.compat.language_model import eval_lm_needs_tokens, prompts_padded_left
from fairseq_posenc.compat.literals import settings_are_values
from fairseq_posenc.compat.log_file import log_lines_once
from fairseq_posenc.compat.numpy2 import numpy_compat_long, percentile_interpolation
from fairseq_posenc.compat.ranking import rank_given_choices
from fairseq_posenc.compat.user_dir import user_dir_twice
from fairseq_posenc.compat.whole_words import mask_whole_words

__all__ = ["apply", "no_fast_path"]


def apply() -> None:
    """Install all workarounds; idempotent."""
    settings_are_values()
    atomic_checkpoints()
    keep_every_sentence()
    data_workers_of_each_epoch()
    clip_where_gradients_are()
    empty_data()
    eval_lm_needs_tokens()
    prompts_padded_left()
    diverse_beam_groups()
    log_lines_once()
    stock_layers_take_padding()
    user_dir_twice()
    mask_whole_words()
    rank_given_choices()
    numpy_compat_long()
    percentile_interpolation()
