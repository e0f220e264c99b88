"""Workarounds for bugs of fairseq, PyTorch and NumPy versions, in one table.

Each repair is a function that takes a function and returns the repaired one; its docstring says
what was measured without the repair.  :func:`apply` installs all repairs.  Repairs are idempotent,
and do nothing where the bug is absent.
"""

import functools
import sys
from typing import Any, Callable, Tuple

from fairseq import checkpoint_utils, search, utils
from fairseq.data import bucket_pad_length_dataset, data_utils  # noqa: F401
from fairseq.data.iterators import EpochBatchIterator
from fairseq.distributed import utils as distributed_utils
from fairseq.file_io import PathManager
from fairseq.logging import progress_bar
from fairseq.models import distributed_fairseq_model
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from fairseq.tasks.language_modeling import LanguageModelingTask

from fairseq_posenc.compat import data, files, generation, processes, settings
from fairseq_posenc.compat.fast_path import no_fast_path, stock_layers_take_padding

__all__ = ["REPAIRS", "Wrapper", "apply", "no_fast_path", "wrap"]

Wrapper = Callable[[Callable[..., Any]], Callable[..., Any]]
_MARK = "_fairseq_posenc_original"

#: For each function to repair: the module or class that holds it, its name, and the repair.
REPAIRS: Tuple[Tuple[Any, str, Wrapper], ...] = (
    (PathManager, "copy", files.copy_atomically),
    (checkpoint_utils, "torch_persistent_save", files.save_atomically),
    (progress_bar, "progress_bar", files.log_lines_once),
    (data_utils, "batch_by_size", data.keep_last_batch),
    (data_utils, "get_buckets", data.buckets_by_method),
    (EpochBatchIterator, "__init__", data.restart_workers),
    (utils, "clip_grad_norm_", processes.clip_where_gradients_are),
    (utils, "import_user_module", settings.user_dir_twice),
    (distributed_utils, "infer_init_method", processes.join_launched_processes),
    (distributed_fairseq_model, "DistributedDataParallel", processes.exchange_on_cpu),
    (LanguageModelingTask, "eval_lm_dataloader", generation.score_every_token),
    (LanguageModelingTask, "inference_step", generation.pad_prompts_right),
    (search.DiverseBeamSearch, "step", generation.diverse_beams_by_row),
    (TransformerEncoderLayerBase, "__init__", stock_layers_take_padding),
)


def wrap(owner: Any, name: str, make: Wrapper) -> None:
    """Replace ``owner.name`` by ``make(original)``, unless it is already replaced.

    Modules of fairseq that have imported the original by name also get the replacement.  *make* may
    return the original; then nothing is replaced.
    """
    original = getattr(owner, name)
    if hasattr(original, _MARK):
        return
    replacement = make(original)
    if replacement is original:
        return
    functools.update_wrapper(replacement, original)
    setattr(replacement, _MARK, original)
    setattr(owner, name, replacement)
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("fairseq"):
            if vars(module).get(name) is original:
                setattr(module, name, replacement)


def apply() -> None:
    """Install all workarounds; idempotent."""
    settings.settings_are_values()
    data.mask_whole_words()
    data.numpy_compat_long()
    for owner, name, repair in REPAIRS:
        wrap(owner, name, repair)
