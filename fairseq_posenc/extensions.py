"""A table of the functions of fairseq and Hydra that the plug-in extends.

The table of the repairs of fairseq, PyTorch and NumPy is in :mod:`fairseq_posenc.compat`.
"""

from typing import Any, List, Tuple

from fairseq import checkpoint_utils, hub_utils, models, options
from fairseq.dataclass import initialize
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator
from fairseq.tasks import FairseqTask
from fairseq.trainer import Trainer
from hydra._internal import utils as hydra_utils

from fairseq_posenc.checkpoints import restore, resuming, run_record
from fairseq_posenc.command_line import checks, report
from fairseq_posenc.compat import Wrapper, wrap
from fairseq_posenc.models import segments, translation
from fairseq_posenc.serving import pretrained

#: For each function: its module or class, its name, and the wrapper that makes its replacement.
EXTENSIONS: List[Tuple[Any, str, Wrapper]] = [
    (options, "parse_args_and_arch", report.parse_in_one_line),
    (hydra_utils, "_is_env_set", report.fail_in_one_line),
    (initialize, "add_defaults", checks.checked),
    (models, "build_model", restore.complete_settings),
    (checkpoint_utils, "load_checkpoint_to_cpu", restore.read_with_clear_errors),
    (checkpoint_utils, "load_model_ensemble_and_task", restore.check_ensemble),
    (checkpoint_utils, "load_checkpoint", restore.check_restoring),
    (Trainer, "load_checkpoint", resuming.explain_restoring),
    (Trainer, "state_dict", run_record.recorded),
    (FairseqTask, "train_step", segments.label_batches),
    (FairseqTask, "valid_step", segments.label_batches),
    (SequenceGenerator, "_generate", translation.counting_hypotheses),
    (EnsembleModel, "forward_decoder", translation.telling_hypotheses),
    (hub_utils, "from_pretrained", pretrained.read_model_folders),
]


def register_extension(owner: Any, name: str, make: Wrapper) -> None:
    """Let a pack extend one of fairseq's functions; :func:`apply` replaces the function.

    Args:
        owner: the module or class of the function; extending a function again has no effect.
        name: the function's name in *owner*.
        make: takes the function and returns its replacement.
    """
    EXTENSIONS.append((owner, name, make))


def apply() -> None:
    """Replace all functions in the table, and restrict unpickling; idempotent."""
    restore.restrict_unpickling()
    for owner, name, extension in EXTENSIONS:
        if owner is not hydra_utils or hasattr(owner, name):  # absent in some versions of Hydra
            wrap(owner, name, extension)
