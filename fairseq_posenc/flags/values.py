"""Checks of the values of fairseq's own flags, before anything is read or written."""

import ast
import math
from argparse import Namespace
from typing import Any, Dict, Mapping

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.flags.options import option
from fairseq_posenc.flags.settings import Bound, check_value, refuse_empty

_POSITIVE, _NOT_NEGATIVE = {"at_least": 1}, {"at_least": 0}

#: Ranges of fairseq's flags of data, optimisation and search; fairseq does not check them.
RANGES: Dict[str, Mapping[str, Bound]] = {
    **dict.fromkeys(("beam", "nbest", "tokens_per_sample"), _POSITIVE),
    **dict.fromkeys(("max_tokens", "batch_size", "save_interval", "validate_interval"), _POSITIVE),
    **dict.fromkeys(("update_freq", "log_interval", "num_shards"), _POSITIVE),
    **dict.fromkeys(("required_batch_size_multiple", "distributed_world_size"), _POSITIVE),
    **dict.fromkeys(("prefix_size", "warmup_updates", "clip_norm", "weight_decay"), _NOT_NEGATIVE),
    **dict.fromkeys(("lr", "num_workers", "save_interval_updates"), _NOT_NEGATIVE),
    **dict.fromkeys(("max_len_a", "max_len_b", "min_len"), _NOT_NEGATIVE),
    "temperature": {"above": 0},
    "label_smoothing": {"at_least": 0, "at_most": 1},
    "seed": {"at_least": 0, "at_most": 2**32 - 1},
    "shard_id": {"at_least": 0, "below": "num_shards"},
}
#: Ranges of the flags of ``--task masked_lm`` and of the plug-in's tasks that mask tokens.
_MASKING: Dict[str, Mapping[str, Bound]] = {
    "mask_prob": {"above": 0, "below": 1},
    **dict.fromkeys(("leave_unmasked_prob", "random_token_prob"), {"at_least": 0, "at_most": 1}),
}
#: Flags whose values are names of files or splits.
_NOT_EMPTY = ("path", "lm_path", "save_dir", "train_subset", "valid_subset", "gen_subset")
#: Flags that commands read only from the command line, not from --model-overrides.
_BY_THEMSELVES = ("task", "criterion", "bpe", "tokenizer", "scoring", "user_dir")


def check_values(args: Namespace) -> None:
    """Refuse values of fairseq's flags that cannot work."""
    masked = str(option(args, "task")).startswith("masked_lm")
    ranges = {**RANGES, **_MASKING} if masked else RANGES
    for name, value in vars(args).items():
        bounds = ranges.get(name)
        if (value == [] and bounds) or (value == "" and name in _NOT_EMPTY):
            refuse_empty(name, "")
        for number in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(number, float) and math.isnan(number):
                raise UsageError(f"{flag_of(name)} {number}: must be a number")
            if number is not None and bounds:
                check_value(name, number, bounds, args)
    left, drawn = option(args, "leave_unmasked_prob"), option(args, "random_token_prob")
    if masked and left and drawn and left + drawn > 1:
        raise UsageError(
            f"--leave-unmasked-prob {left}: with --random-token-prob {drawn} exceeds 1; lower "
            "one of the two"
        )
    _check_literals(args)
    _check_search(args)
    if option(args, "lr_scheduler") == "inverse_sqrt" and option(args, "warmup_updates") == 0:
        raise UsageError(
            "--warmup-updates 0: --lr-scheduler inverse_sqrt divides by it; give at least 1"
        )
    window, length = option(args, "context_window"), option(args, "tokens_per_sample")
    if window and length and window >= length:
        raise UsageError(f"--context-window {window}: must be below --tokens-per-sample {length}")


def read_overrides(text: str) -> Dict[str, Any]:
    """The settings of ``--model-overrides``, a dictionary in Python's notation.

    Raises:
        UsageError: the text is no dictionary, or has a flag that --model-overrides cannot set.
    """
    overrides = _literal(text)
    if not isinstance(overrides, dict):
        raise UsageError(
            f"--model-overrides {text}: must be a dictionary of Python, such as "
            "\"{'max_source_positions': 2048}\""
        )
    for name, value in overrides.items():
        if name in _BY_THEMSELVES and not isinstance(value, dict):
            raise UsageError(
                f"--model-overrides {name}={value!r}: has no effect; give the flag {flag_of(name)}"
            )
    return overrides


def _check_search(args: Namespace) -> None:
    """Refuse flags of sampling that contradict each other, and misplaced constraints."""
    if not hasattr(args, "sampling_topk"):
        return
    for name, most in (("sampling_topk", {}), ("sampling_topp", {"at_most": 1})):
        value = option(args, name)
        if value != -1:  # fairseq's default
            check_value(name, value, {"above": 0, **most})
            if not args.sampling:
                raise UsageError(f"{flag_of(name)} {value}: has no effect without --sampling")
    if args.sampling and args.nbest != args.beam:
        raise UsageError(
            f"--nbest {args.nbest}: --sampling draws as many samples as --beam {args.beam}, and "
            "prints all of them; give --nbest and --beam the same number"
        )
    if args.constraints and not hasattr(args, "buffer_size"):
        raise UsageError(
            f"--constraints {args.constraints}: works only in fairseq-interactive, whose input "
            "lines contain the constraints; drop it"
        )


def _check_literals(args: Namespace) -> None:
    overrides = option(args, "model_overrides")
    if isinstance(overrides, str):
        read_overrides(overrides)
    betas = option(args, "adam_betas")
    if isinstance(betas, str):
        pair = _literal(betas)
        pair = pair if isinstance(pair, (tuple, list)) else ()
        if len(pair) != 2 or not all(isinstance(x, (int, float)) and 0 <= x < 1 for x in pair):
            raise UsageError(
                f"--adam-betas {betas}: must be two numbers from 0 to below 1, such as "
                "'(0.9, 0.98)'"
            )


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
