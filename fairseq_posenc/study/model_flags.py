"""Which flags of a system describe its model, for commands that build it anew."""

import argparse

from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_posenc.models import family_of
from fairseq_posenc.study.flags import Flags


def flags_of_model(flags: Flags) -> Flags:
    """The architecture and, unless the plug-in reads them from the checkpoint, the model's flags.

    Args:
        flags: all flags of a training.
    """
    arch = str(flags.get("--arch"))
    family = family_of(arch)
    if family is not None:
        return {"--arch": family.model}
    stock = ARCH_MODEL_REGISTRY.get(arch)
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    if stock is not None:  # otherwise, the command line is refused
        stock.add_args(parser)
    known = {name for action in parser._actions for name in action.option_strings}
    own = {flag: value for flag, value in flags.items() if flag in known}
    return {"--arch": arch, **own}
