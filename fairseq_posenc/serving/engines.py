"""CTranslate2 as an engine for translation, and the choice between engines.

Neither PyTorch nor fairseq is imported unless fairseq is chosen.
"""

import os
from typing import Any, List, Optional

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_json_object
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.serving.model_folder import EXPORT, EXPORT_SETTINGS, ModelFolder
from fairseq_posenc.serving.translate import Beam, Engine, Hardware, Hypothesis, Tokens


class CTranslate2Engine:
    """Translates with a model that was exported to CTranslate2.

    Args:
        folder: the model folder.
        hardware: the device, the threads and the type to compute with.
    """

    def __init__(self, folder: ModelFolder, hardware: Hardware) -> None:
        shown, path = f"--model {folder.path}", str(folder.export)
        module = import_extra("ctranslate2", shown)
        folder.check(shown, EXPORT)
        told = os.path.join(path, EXPORT_SETTINGS)
        settings = read_json_object(told, f"{shown}: its {EXPORT_SETTINGS}")
        if hardware.compute_type != "default":
            _check_compute_type(module, hardware)
        part = EXPORT_SETTINGS
        try:
            self.longest = {side: int(settings["longest"][side]) for side in ("source", "target")}
            part = EXPORT
            self._translator = module.Translator(
                path,
                device=hardware.device,
                compute_type=hardware.compute_type,
                intra_threads=hardware.threads,
            )
        except (KeyError, OverflowError, RuntimeError, TypeError, ValueError) as error:
            raise UsageError(
                f"{shown}: its {part} cannot be loaded ({error}); export the checkpoint again"
            ) from error

    def translate(
        self, sources: List[Tokens], prefixes: List[Tokens], beam: Beam
    ) -> List[List[Hypothesis]]:
        """See :class:`~fairseq_posenc.serving.translate.Engine`."""
        results = self._translator.translate_batch(
            sources,
            target_prefix=prefixes if any(prefixes) else None,
            beam_size=beam.size,
            length_penalty=beam.penalty,
            num_hypotheses=beam.n_best,
            max_decoding_length=beam.max_length,
            max_input_length=0,
            max_batch_size=beam.batch,
            batch_type="tokens",
            return_scores=True,
        )
        return [
            [Hypothesis(tokens, score) for tokens, score in zip(each.hypotheses, each.scores)]
            for each in results
        ]


def _check_compute_type(module: Any, hardware: Hardware) -> None:
    try:
        known = sorted(module.get_supported_compute_types(hardware.device))
    except (RuntimeError, ValueError) as error:
        raise UsageError(f"--device {hardware.device}: cannot be used ({error})") from error
    if hardware.compute_type not in known:
        raise UsageError(
            f"--compute-type {hardware.compute_type}: the {hardware.device} of this machine does "
            f"not support it; give one of {', '.join(known)}"
        )


def engine_for(folder: ModelFolder, hardware: Hardware, name: Optional[str] = None) -> Engine:
    """The engine of a model folder: *name*, or CTranslate2 if the model was exported, else fairseq.

    Raises:
        UsageError: the folder has no translation model, or no model for the engine; or the engine
            does not support ``--compute-type``.
    """
    if folder.task != "translation":
        raise UsageError(
            f"--model {folder.path}: holds a model of --task {folder.task}; give the folder "
            "of a translation model"
        )
    has = {"ctranslate2": folder.export, "fairseq": folder.checkpoint}
    chosen = name or ("ctranslate2" if folder.export else "fairseq")
    if has[chosen] is None:
        other = next(each for each in has if each != chosen)
        raise UsageError(f"--engine {chosen}: {folder.path} has only a model for {other}; drop it")
    if chosen == "fairseq" and hardware.compute_type != "default":
        raise UsageError(
            f"--compute-type {hardware.compute_type}: is for --engine ctranslate2; drop it"
        )
    if chosen == "ctranslate2":
        return CTranslate2Engine(folder, hardware)
    import torch

    from fairseq_posenc.checkpoints.loader import load
    from fairseq_posenc.serving.translation import FairseqEngine

    if hardware.threads:
        torch.set_num_threads(hardware.threads)
    return FairseqEngine(load(folder.checked(), folder.overrides, hardware.device))
