"""Model flags that belong to no encoding, attention, norm or layer.

A pack, or a user's own ``--user-dir``, registers here how its flags change a configuration before a
model is built.  How the flags change the model itself is registered elsewhere.
"""

from typing import Any, Callable, Iterable, List, Mapping, NamedTuple, Optional, Sequence

from fairseq_posenc.attention import flag_of_kernel, kernel_of
from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.encodings import Pattern, Stack
from fairseq_posenc.flags.options import SIDES, Options, option
from fairseq_posenc.flags.registry import Registry, tell


class Completed(NamedTuple):
    """A complete configuration, which features check."""

    cfg: Options  # flat configuration
    model: str  # the ``--arch`` of its family
    stacks: List[Stack]  # its encoder and decoder, or its only stack
    settings: Options  # settings of the task, or the parsed command line
    fresh: bool  # True for a model to be trained, False for one from a checkpoint
    patterns: Mapping[str, Pattern]  # the encodings of the layers, by side

    @property
    def task(self) -> Any:
        """The value of ``--task``, or None."""
        return option(self.settings, "task") or option(self.settings, "_name")


class Feature(NamedTuple):
    """Flags, and what they change or check in a configuration."""

    flags: type  # a dataclass whose fields are declared with ``setting``
    models: Sequence[str] = ()  # the ``--arch`` of the families that have the flags; all by default
    # registries from which these flags select entries; the entries may declare further flags
    registries: Sequence[Registry[Any]] = ()
    # sets, in place, other settings that follow from flags that the user gave; runs before presets
    # and defaults are filled in
    complete: Optional[Callable[[Options], None]] = None
    # returns the stack with the changes of the feature
    stack: Optional[Callable[[Options, Stack], Stack]] = None
    # given the length of a training text, returns the number of positions that the model sees in
    # training; the largest result of all features is used
    trained_length: Optional[Callable[[Options, int], int]] = None
    # refuses configurations that cannot work
    check: Optional[Callable[[Completed], None]] = None


#: All features, in the order in which they were registered.
FEATURES: List[Feature] = []


def register_feature(flags: type, **entries: Any) -> None:
    """Register a :class:`Feature` of *flags*; *entries* are its other fields.

    Raises:
        UsageError: a flag has the name of an existing flag.
    """
    FEATURES.append(Feature(flags, **entries))
    try:
        tell()
    except UsageError:
        FEATURES.pop()
        raise


def features_of(models: Iterable[str]) -> List[Feature]:
    """The features that at least one of *models* has."""
    names = set(models)
    return [each for each in FEATURES if not each.models or not names.isdisjoint(each.models)]


def refuse_flags(cfg: Options, flag: str, why: Mapping[str, str], remedy: str = "drop") -> None:
    """Refuse each flag in *why* that is on; *why* maps it to the reason why *flag* excludes it."""
    for name, reason in why.items():
        value = option(cfg, name)
        if value:
            raise UsageError(f"{flag}: {reason}; {remedy} {flag_of(name, value)}")


def refuse_one_input(cfg: Options, flag: str) -> None:
    """Refuse an attention that has one input for queries and keys, because *flag* needs two."""
    if "keys" not in kernel_of(cfg).takes:
        instead = "--layer transformer" if cfg.layer == "gated" else "--attention softmax"
        raise UsageError(
            f"{flag}: {flag_of_kernel(cfg)} has one input for queries and keys; give {instead}"
        )


def side_encoding(cfg: Options, side: str) -> str:
    """The position encoding of one *side*: from its own flag, else from ``--position-encoding``."""
    return option(cfg, f"{side}_position_encoding") or cfg.position_encoding


def stack_of(cfg: Options, side: str) -> Stack:
    """The encoder or decoder of a translation or language model; *cfg* is complete."""
    longest = cfg.max_source_positions if side == "encoder" else cfg.max_target_positions
    return _stack(cfg, side, side == "decoder", longest, False)


def masked_lm_stack(cfg: Options) -> Stack:
    """The encoder of a masked language model: its input starts with [CLS]."""
    return _stack(cfg, "encoder", bool(cfg.causal), cfg.num_positions, True)


def translation_stacks(cfg: Options) -> List[Stack]:
    """The stacks of an encoder-decoder."""
    return [stack_of(cfg, side) for side in SIDES]


def _stack(cfg: Options, side: str, causal: bool, max_positions: int, has_cls: bool) -> Stack:
    """A stack with the self-attention heads that *cfg* selects, changed by all features."""
    kernel = kernel_of(cfg)
    heads, size = kernel.heads(cfg, side)
    flags, relative = kernel.size_flags(cfg, side), kernel.relative_after_rotation(cfg)
    channels = option(cfg, f"{side}_embed_dim")
    stack = Stack(side, heads, size, causal, max_positions, has_cls, relative, flags, channels)
    for feature in FEATURES:
        stack = feature.stack(cfg, stack) if feature.stack else stack
    return stack
