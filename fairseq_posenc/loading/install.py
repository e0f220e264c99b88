"""Installation of the checkpoint checks in fairseq."""

from fairseq_posenc.compat.hooks import hook_checkpoints
from fairseq_posenc.loading.building import built
from fairseq_posenc.loading.restore import building, reading, restoring
from fairseq_posenc.loading.run_record import saving


def install() -> None:
    """Check every checkpoint that fairseq reads; idempotent."""
    hook_checkpoints(
        reading=reading, building=building, restoring=restoring, saving=saving, built=built
    )
