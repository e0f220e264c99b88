"""Changes to a model that was just built, before it is trained or loaded."""

from typing import Callable, List

from torch import nn

from fairseq_posenc.flags.options import Options

#: Each changes a model in place, as the flags in its configuration say.
CHANGES: List[Callable[[nn.Module, Options], None]] = []


def apply_changes(model: nn.Module, cfg: Options) -> None:
    """Change a model that was just built, in place, as flags of packs say."""
    for change in CHANGES:
        change(model, cfg)
