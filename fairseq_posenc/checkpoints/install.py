"""Installation of the checkpoint checks in fairseq."""

from fairseq_posenc.checkpoints.building import built
from fairseq_posenc.checkpoints.reading import allow_fairseq_checkpoints
from fairseq_posenc.checkpoints.restore import building, reading, restoring
from fairseq_posenc.checkpoints.run_record import saving
from fairseq_posenc.checkpoints.safe_loading import load_with_allow_list
from fairseq_posenc.compat.hooks import hook_checkpoints


def install() -> None:
    """Check every checkpoint that fairseq reads; idempotent."""
    allow_fairseq_checkpoints()
    load_with_allow_list()
    hook_checkpoints(
        reading=reading, building=building, restoring=restoring, saving=saving, built=built
    )
