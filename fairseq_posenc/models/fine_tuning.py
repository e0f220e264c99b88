"""Fine-tuning a masked language model: what the encoder is, its checkpoint says.

``--task sentence_prediction`` starts from ``--restore-file`` or ``--finetune-from-model``, or goes
on in its own ``--save-dir``.  Shape and position encoding of the encoder are read from that file,
so they need not be repeated on the command line, and what contradicts them stops the run instead
of starting from random weights.
"""

import dataclasses
import logging
import os
from typing import Any, Dict, Mapping, Optional, Tuple

from fairseq_posenc.checkpoints import model_settings, read_checkpoint
from fairseq_posenc.config import layer_fields
from fairseq_posenc.encodings import encoding_flags, parse_encodings
from fairseq_posenc.encodings.rotary_scaling import ScalingFlags
from fairseq_posenc.errors import UsageError, flag_of

logger = logging.getLogger(__name__)

_TASKS = ("sentence_prediction", "sentence_ranking")
_ENCODING = ("position_encoding", *(flag.name for flag in encoding_flags()))
# inherited, too, but free to change: the parameters serve any scaling
_FREE = tuple(flag.name for flag in dataclasses.fields(ScalingFlags))
# of a training, not of its model: random features stay as the checkpoint has them
_OWN = ("favor_redraw", "favor_redraw_until")
_SHAPE = (
    "encoder_layers",
    "encoder_embed_dim",
    "encoder_ffn_embed_dim",
    "encoder_attention_heads",
    "encoder_input_dim",
    "encoder_normalize_before",
    "layernorm_embedding",
    *(name for name, _, _ in layer_fields() if name not in _OWN),
    "lm_head",
    "activation_fn",
    "num_segments",
    "causal",
    "untie_weights_roberta",
    "pooler_activation_fn",  # of a checkpoint that has heads
)


def is_fine_tuning(settings: Any) -> bool:
    """Whether a task's *settings* are those of one that starts from a pre-trained model."""
    names = (getattr(settings, "_name", None), getattr(settings, "task", None))
    return any(name in _TASKS for name in names)


def _source(args: Any) -> Optional[Tuple[str, str]]:
    """What says where the training starts, and the path, in the order in which fairseq looks."""
    named = getattr(args, "restore_file", None) or "checkpoint_last.pt"
    own = os.path.join(getattr(args, "save_dir", None) or "", "checkpoint_last.pt")
    if named != "checkpoint_last.pt" and os.path.abspath(named) != os.path.abspath(own):
        return "--restore-file", named
    if os.path.isfile(own):
        return "--save-dir, resuming from", own
    pretrained = getattr(args, "finetune_from_model", None)
    return ("--finetune-from-model", pretrained) if pretrained else None


def inherit(args: Any, arch: str, preset: Mapping[str, Any]) -> None:
    """Complete a parsed command line, in place, by what the pre-trained checkpoint says.

    Does nothing unless the task fine-tunes and there is such a file.

    Args:
        args: parsed command line; flags that were not given are absent or None.
        arch: what ``--arch`` gave.
        preset: its settings.

    Raises:
        UsageError: the file is missing, is no masked language model, or a flag or *arch*
            contradicts it.
    """
    source = _source(args) if is_fine_tuning(args) else None
    if source is None:
        return
    saved = _settings_of(*source)
    where = " ".join(source)
    for name in _ENCODING + _SHAPE:
        value = saved.get(name)
        if value is None:  # a flag that is younger than the checkpoint
            continue
        given = getattr(args, name, None)
        if given is not None and name in _FREE:
            continue
        if given is not None and given != value:
            raise UsageError(
                f"{flag_of(name)} {given}: {where} was trained with {value}; drop the flag"
            )
        if given is None and preset.get(name, value) != value:
            raise UsageError(
                f"--arch {arch} has {flag_of(name)} {preset[name]}, but {where} has {value}; use "
                "--arch posenc_masked_lm, which takes shape and encoding from the checkpoint"
            )
        setattr(args, name, value)
    _inherit_positions(args, saved, where)
    logger.info("%s: position encoding %s", where, saved["position_encoding"])


def check_encoding(path: str, cfg: Any) -> bool:
    """Compare the encoding of a checkpoint that a training starts from with that of its model.

    Encodings without parameters leave no other trace in a checkpoint than its settings.

    Args:
        path: the checkpoint.
        cfg: fairseq's whole configuration.

    Returns:
        whether they differ, which is logged: a warm start.

    Raises:
        UsageError: they differ, and the task fine-tunes; or a scaling is for another length.
    """
    encoding = getattr(cfg.model, "position_encoding", None)
    if encoding is None:  # a model of fairseq's
        return False
    saved = model_settings(read_checkpoint(path, lazy=True))
    if saved.get("position_encoding") is None:
        return True
    saved.setdefault("attention", "softmax")  # from before there was a choice
    names = ["position_encoding", "untie_cls", "attention", "linear_rotary", "favor_kernel"]
    for each in parse_encodings(saved["position_encoding"]):
        names += [field.name for field in dataclasses.fields(each.flags)] if each.flags else []
    differences = {
        name: f"{flag_of(name)} {saved[name]} -> {getattr(cfg.model, name, None)}"
        for name in names
        if saved.get(name) is not None and saved[name] != getattr(cfg.model, name, None)
    }
    other = [text for name, text in differences.items() if name not in _FREE]
    if other and is_fine_tuning(cfg.task):
        raise UsageError(
            f"{path}: was trained with another encoding or attention ({', '.join(other)}); use "
            "--arch posenc_masked_lm without such flags, or under hydra give those of the file"
        )
    for difference in differences.values():
        logger.warning("warm start: %s", difference)
    _check_trained_length(path, cfg.model, saved)
    return bool(differences)


def _check_trained_length(path: str, model: Any, saved: Mapping[str, Any]) -> None:
    """Scaled frequencies are those of the length before; a training of another one has its own."""
    trained, taken = saved.get("rotary_original_length"), model.rotary_original_length
    if model.rotary_scaling != "none" and trained is not None and trained != taken:
        raise UsageError(
            f"--rotary-scaling {model.rotary_scaling}: {path} was trained on {trained} tokens, and "
            f"its frequencies would be scaled as if on {taken}; give --rotary-original-length "
            f"{trained}"
        )


def _settings_of(flag: str, path: str) -> Dict[str, Any]:
    """The model settings in a checkpoint of a masked language model, stock RoBERTa included."""
    if not os.path.isfile(path):
        raise UsageError(
            f"{flag} {path}: no such file (the path is relative to the current folder, "
            f"{os.getcwd()}, and not to --save-dir)"
        )
    state = read_checkpoint(path, lazy=True)
    if not any("sentence_encoder.embed_tokens" in key for key in state.get("model") or ()):
        raise UsageError(
            f"{flag} {path}: is no masked language model (it has no sentence_encoder); give a "
            "checkpoint of --task masked_lm"
        )
    saved = model_settings(state)
    if not any(key.startswith("classification_heads.") for key in state["model"]):
        saved.pop("pooler_activation_fn", None)
    saved.setdefault("position_encoding", "learned")  # fairseq's RoBERTa
    saved.setdefault("encoder_input_dim", saved["encoder_embed_dim"])
    saved.setdefault("attention", "softmax")
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
