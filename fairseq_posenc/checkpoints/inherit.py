"""Settings that fine-tuning takes from the checkpoint that it starts from.

Fine-tuning with ``--task sentence_prediction`` starts from ``--restore-file`` or
``--finetune-from-model``, or resumes in its ``--save-dir``.  In all three cases, the settings of
the trained model come from that checkpoint, and flags that contradict them are refused.
"""

import logging
import os
from argparse import Namespace
from typing import Any, Dict, Mapping, Optional, Tuple

from fairseq.file_io import PathManager

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.checkpoints.reading import read_checkpoint
from fairseq_posenc.checkpoints.settings import saved_settings, task_of
from fairseq_posenc.configuration.effect import has_effect
from fairseq_posenc.configuration.fields import computing_fields, defaults_of
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.settings import role_in
from fairseq_posenc.layers.heads import PRETRAINING

logger = logging.getLogger(__name__)

#: tasks that start from a pre-trained masked language model
FINE_TUNING = ["sentence_prediction", "sentence_ranking"]
#: settings of classification heads, which a pre-trained checkpoint need not have
HEADS = ("pooler_activation_fn", "spectral_norm_classification_head", "pooler", "pooler_norm")
#: a setting that the fine-tuning task chooses if the checkpoint has no classification heads
BY_TASK = "segments"
#: the newest checkpoint in the folder of a run, and how messages name a checkpoint found there
LAST, RESUMING = "checkpoint_last.pt", "in --save-dir, the checkpoint"


def inherited_flags(family: type, options: Options) -> Dict[str, Any]:
    """The flags that fine-tuning takes from the checkpoint, with their roles.

    Those with the role ``free`` can be overridden on the command line.
    """
    return {
        field.name: role_in(options, field.metadata)
        for field in computing_fields(family, options)
        if field.name != "num_positions"
    }


def is_fine_tuning(settings: Options) -> bool:
    """True for the settings of a task that starts from a pre-trained model."""
    names = (option(settings, "_name"), option(settings, "task"))
    return any(name in FINE_TUNING for name in names)


def start_of(cfg: Options, suffix: str = "") -> Optional[Tuple[str, str]]:
    """The flag that names the checkpoint to start from, and its path; None to start from scratch.

    Flags have the same order of precedence as in fairseq.  A file that a flag names need not exist.

    *cfg* is fairseq's group ``checkpoint``, or a parsed command line; *suffix* is fairseq's suffix
    for the file of one shard of a model.
    """
    named = option(cfg, "restore_file") or LAST
    last = os.path.join(option(cfg, "save_dir") or "", LAST)
    if named != LAST and os.path.abspath(named) != os.path.abspath(last):
        return "--restore-file", named.replace(".pt", f"{suffix}.pt")
    last = last.replace(".pt", f"{suffix}.pt")
    if PathManager.isfile(last):
        return RESUMING, last
    for name in ("continue_once", "finetune_from_model") if named == LAST else ():
        if option(cfg, name):
            return flag_of(name), option(cfg, name)
    return None


def inherit(args: Options, family: type, arch: str, preset: Mapping[str, Any]) -> None:
    """Complete a parsed command line, in place, with settings of the pre-trained checkpoint.

    Does nothing unless the task fine-tunes and there is a checkpoint.

    Raises:
        UsageError: the checkpoint is missing, is not a masked language model, or contradicts a flag
            or *arch*.
    """
    source = start_of(args) if is_fine_tuning(args) else None
    if source is None:
        return
    saved = _settings_of(*source)
    where = " ".join(source)
    complete = {**defaults_of(family), **{n: v for n, v in saved.items() if v is not None}}
    told = {name: option(args, name) for name in complete if option(args, name) is not None}
    for name, role in inherited_flags(family, Namespace(**{**complete, **told})).items():
        value, asked = saved.get(name), told.get(name)
        # the value is None if the flag is newer than the checkpoint
        if value is None or (asked is not None and role == "free"):
            continue
        if asked is not None and asked != value:
            raise UsageError(
                f"{flag_of(name)} {asked}: {where} was trained with {value}; drop the flag"
            )
        differs = asked is None and preset.get(name, value) != value
        if differs and has_effect(name, complete, family):
            raise UsageError(
                f"--arch {arch} has {flag_of(name)} {preset[name]}, but {where} has {value}; use "
                "--arch posenc_masked_lm, which takes shape and encoding from the checkpoint"
            )
        setattr(args, name, value)
    _inherit_positions(args, saved, where)
    logger.info("%s: position encoding %s", where, saved["position_encoding"])


def no_such_file(flag: str, path: str) -> str:
    """The message for a checkpoint that a flag names but that does not exist."""
    return (
        f"{flag} {path}: no such file (the path is relative to the current folder, "
        f"{os.getcwd()}, and not to --save-dir)"
    )


def _settings_of(flag: str, path: str) -> Dict[str, Any]:
    """The model settings in a checkpoint of a masked language model, stock RoBERTa included."""
    if not PathManager.isfile(path):
        raise UsageError(no_such_file(flag, path))
    state = read_checkpoint(PathManager.get_local_path(path), lazy=True)
    if not any("sentence_encoder.embed_tokens" in key for key in state.get("model") or ()):
        raise UsageError(
            f"{flag} {path}: is not a masked language model (it has no sentence_encoder); give a "
            "checkpoint of --task masked_lm"
        )
    saved = saved_settings(state)
    heads = [k for k in state["model"] if k.startswith(("classification_heads.", "token_heads."))]
    if all(key.startswith(tuple(f"{module}." for module in PRETRAINING)) for key in heads):
        for name in (*HEADS, BY_TASK):
            saved.pop(name, None)
    elif is_fine_tuning(task_of(state)):
        saved.setdefault(BY_TASK, "single")  # the checkpoint is older than --segments
    return as_ours(saved)


def as_ours(saved: Dict[str, Any]) -> Dict[str, Any]:
    """Complete the settings of a masked language model, in place, if it is fairseq's RoBERTa."""
    saved.setdefault("position_encoding", "learned")
    if saved.get("encoder_input_dim") is None:
        saved["encoder_input_dim"] = saved["encoder_embed_dim"]
    saved.setdefault("attention", "softmax")
    return saved


def _inherit_positions(args: Options, saved: Mapping[str, Any], source: str) -> None:
    """Keep the size of the position table, and set ``--max-positions`` unless it was given."""
    rows = saved.get("num_positions") or saved.get("max_positions") or 512
    asked = option(args, "num_positions")
    if asked not in (None, rows):
        raise UsageError(f"--num-positions {asked}: {source} has {rows}; drop the flag")
    args.num_positions = rows
    if option(args, "max_positions") is None:
        args.max_positions = rows
