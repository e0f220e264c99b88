"""Fine-tuning a masked language model: what the encoder is, its checkpoint says.

``--task sentence_prediction`` starts from ``--restore-file`` or ``--finetune-from-model``.  Shape
and position encoding of the encoder are read from that file, so they need not be repeated on the
command line, and what contradicts them stops the run instead of starting from random weights.
"""

import logging
import os
from typing import Any, Dict, Mapping, Optional, Tuple

from fairseq_posenc.checkpoints import read_checkpoint
from fairseq_posenc.config import layer_fields
from fairseq_posenc.encodings import encoding_flags
from fairseq_posenc.errors import UsageError

logger = logging.getLogger(__name__)

_TASKS = ("sentence_prediction", "sentence_ranking")
_ENCODING = ("position_encoding", *(flag.name for flag in encoding_flags()))
_SHAPE = (
    "encoder_layers",
    "encoder_embed_dim",
    "encoder_ffn_embed_dim",
    "encoder_attention_heads",
    "encoder_input_dim",
    "encoder_normalize_before",
    "layernorm_embedding",
    *(name for name, _, _ in layer_fields()),
    "lm_head",
    "activation_fn",
    "num_segments",
    "causal",
    "untie_weights_roberta",
    "pooler_activation_fn",  # of a checkpoint that has heads
)


def is_fine_tuning(task: Any) -> bool:
    """Whether *task*, a task's settings, is one that starts from a pre-trained model."""
    return getattr(task, "_name", None) in _TASKS


def _source(args: Any) -> Tuple[str, Optional[str]]:
    """Flag and path of the pre-trained checkpoint, if the command line names one."""
    named = getattr(args, "restore_file", None)
    own = os.path.join(getattr(args, "save_dir", None) or "", "checkpoint_last.pt")
    if named and named != "checkpoint_last.pt" and os.path.abspath(named) != os.path.abspath(own):
        return "--restore-file", named
    return "--finetune-from-model", getattr(args, "finetune_from_model", None)


def inherit(args: Any, arch: str, preset: Mapping[str, Any]) -> None:
    """Complete a parsed command line, in place, by what the pre-trained checkpoint says.

    Does nothing unless the task fine-tunes and names such a file.

    Args:
        args: parsed command line; flags that were not given are absent or None.
        arch: what ``--arch`` gave.
        preset: its settings.

    Raises:
        UsageError: the file is missing, is no masked language model, or a flag or the shape of
            *arch* contradicts it.
    """
    flag, path = _source(args)
    if getattr(args, "task", None) not in _TASKS or path is None:
        return
    saved = _settings_of(flag, path)
    for name in _ENCODING + _SHAPE:
        value = saved.get(name)
        if value is None:  # an encoding's flag that is younger than the checkpoint
            continue
        given = getattr(args, name, None)
        if given is not None and given != value:
            raise UsageError(
                f"{_flag(name)} {given}: {flag} {path} was trained with {value}; drop the flag"
            )
        if name in _SHAPE and preset.get(name, value) != value:
            raise UsageError(
                f"--arch {arch} has {_flag(name)} {preset[name]}, but {flag} {path} has {value}; "
                "use --arch posenc_masked_lm, which takes the shape from the checkpoint"
            )
        setattr(args, name, value)
    _inherit_positions(args, saved, f"{flag} {path}")
    logger.info("%s %s: position encoding %s", flag, path, saved["position_encoding"])


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _settings_of(flag: str, path: str) -> Dict[str, Any]:
    """The model settings in a checkpoint of a masked language model, stock RoBERTa included."""
    if not os.path.isfile(path):
        raise UsageError(
            f"{flag} {path}: no such file (the path is relative to the current folder, "
            f"{os.getcwd()}, and not to --save-dir)"
        )
    state = read_checkpoint(path)
    if not any("sentence_encoder.embed_tokens" in key for key in state.get("model") or ()):
        raise UsageError(
            f"{flag} {path}: is no masked language model (it has no sentence_encoder); give a "
            "checkpoint of --task masked_lm"
        )
    saved = state["cfg"]["model"] if state.get("cfg") is not None else state["args"]
    saved = dict(saved) if hasattr(saved, "keys") else dict(vars(saved))
    if not any(key.startswith("classification_heads.") for key in state["model"]):
        saved.pop("pooler_activation_fn", None)
    saved.setdefault("position_encoding", "learned")  # fairseq's RoBERTa
    saved.setdefault("encoder_input_dim", saved["encoder_embed_dim"])
    return saved


def _inherit_positions(args: Any, saved: Mapping[str, Any], source: str) -> None:
    """The table keeps its size; shorter inputs, and longer ones without a table, are free."""
    rows = saved.get("num_positions") or saved.get("max_positions") or 512
    given = getattr(args, "num_positions", None)
    if given is not None and given != rows:
        raise UsageError(f"--num-positions {given}: {source} has {rows}; drop the flag")
    args.num_positions = rows
    if getattr(args, "max_positions", None) is None:
        args.max_positions = rows
