"""The choice of an engine; PyTorch and fairseq are imported only if fairseq is chosen."""

from typing import Callable, Dict, Optional

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.serving.ctranslate2_engine import CTranslate2Engine
from fairseq_posenc.serving.engine import Engine, Hardware
from fairseq_posenc.serving.model_folder import ModelFolder


def _fairseq(folder: ModelFolder, hardware: Hardware) -> Engine:
    from fairseq_posenc.serving.fairseq_engine import FairseqEngine

    return FairseqEngine(folder, hardware)


ENGINES: Dict[str, Callable[[ModelFolder, Hardware], Engine]] = {
    "ctranslate2": CTranslate2Engine,
    "fairseq": _fairseq,
}


def engine_for(folder: ModelFolder, hardware: Hardware, name: Optional[str] = None) -> Engine:
    """The engine of a model folder: CTranslate2 if the model was exported, else fairseq.

    Args:
        folder: the model folder.
        hardware: where it computes.
        name: a key of :data:`ENGINES`, to choose.

    Raises:
        UsageError: the folder has no model for it, or it has no such weights.
    """
    has = {"ctranslate2": folder.export, "fairseq": folder.checkpoint}
    chosen = name or ("ctranslate2" if folder.export else "fairseq")
    if has[chosen] is None:
        other = next(each for each in has if each != chosen)
        raise UsageError(f"--engine {chosen}: {folder.path} has a model for {other} only")
    if chosen == "fairseq" and hardware.compute_type != "default":
        raise UsageError(
            f"--compute-type {hardware.compute_type}: is of --engine ctranslate2; drop it"
        )
    return ENGINES[chosen](folder, hardware)
