"""Every work-around for a fairseq, PyTorch or NumPy version, one function a quirk.

:func:`apply` calls them all.  Each is idempotent, and does nothing where its quirk is
absent.  No other module of the package patches anything.
"""

from fairseq_posenc.compat.versions import HAS_SDPA, SDPA_HAS_SCALE, SDPA_SAFE_MASKS, TORCH_VERSION

__all__ = ["HAS_SDPA", "SDPA_HAS_SCALE", "SDPA_SAFE_MASKS", "TORCH_VERSION", "apply"]


def apply() -> None:
    """Install every work-around; calling it again changes nothing."""
