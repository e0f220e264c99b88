"""Model folders of the ``transformers`` library: config.json, weights, embeddings and output.

Reading ``pytorch_model.bin`` only needs PyTorch, reading ``model.safetensors`` needs the package
``safetensors``, and running a model for ``--verify`` needs ``transformers``.
"""

import os
from pathlib import Path
from types import MappingProxyType
from typing import Any, Callable, Collection, Dict, Mapping, NamedTuple, Optional

import torch
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import json_text, read_json_object
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.checkpoints.reading import check_tensors, load_file
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.formats import ForeignModel
from fairseq_posenc.exchange.reader import ForeignParameters
from fairseq_posenc.models.kinds import PAD

_CONFIG = "config.json"
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")


class Folder(NamedTuple):
    """The content of a model folder."""

    path: str  # the folder
    config: Config  # config.json
    weights: str  # path of the weights
    parameters: ForeignParameters  # the weights, by name


def open_folder(
    path: str, model_type: str, aliases: Mapping[str, str] = MappingProxyType({})
) -> Folder:
    """Read the configuration and the weights.

    Args:
        aliases: other names of entries in config.json, each with the one that is read here.

    Raises:
        UsageError: it is another type of model, or a file is missing or unreadable.
    """
    if os.path.isfile(path):
        raise UsageError(f"{path}: is a file; give the folder written by save_pretrained")
    file = os.path.join(path, _CONFIG)
    advice = "give a folder written by save_pretrained"
    config = Config(file, read_json_object(file, f"{file}:", advice))
    found = config.get("model_type", "")
    if found != model_type:
        raise UsageError(
            f"{config.path}: model_type is {found!r}, but this format reads {model_type!r} only"
        )
    weights = weights_file(path)
    return Folder(path, config.without_aliases(aliases), weights, read_weights(weights))


def weights_file(path: str) -> str:
    """The file with the weights of a folder, or a UsageError that names those it can be."""
    for name in _WEIGHTS:
        weights = os.path.join(path, name)
        if os.path.isfile(weights):
            return weights
    raise UsageError(
        f"{path}: has no weights; it needs {' or '.join(_WEIGHTS)} (weights split into several "
        "files must be saved as one)"
    )


def read_weights(path: str) -> ForeignParameters:
    """The tensors in a file of weights by name, or a UsageError if it holds anything else."""
    read = _read_safetensors if path.endswith("safetensors") else load_file
    return check_tensors(read(path), path)


def with_prefix(parameters: ForeignParameters, name: str) -> ForeignParameters:
    """Parameters with names that begin as *name*; older files leave the first part out."""
    first, _, rest = name.partition(".")
    if name in parameters or rest not in parameters:
        return dict(parameters)
    return {f"{first}.{theirs}": tensor for theirs, tensor in parameters.items()}


def write_weights(path: str, entries: Dict[str, Any], parameters: ForeignParameters) -> None:
    """Write the configuration and the weights."""
    safetensors = import_extra("safetensors.torch", "model.safetensors")
    Path(path, _CONFIG).write_text(json_text(entries), "utf-8")
    tensors = {name: value.contiguous() for name, value in parameters.items()}
    content = safetensors.save(tensors, metadata={"format": "pt"})
    Path(path, "model.safetensors").write_bytes(content)


def load_with(kind: Any, path: str, computed: Collection[str] = ()) -> nn.Module:
    """Load a folder with ``from_pretrained`` of a class, in evaluation mode.

    Args:
        kind: the class, of transformers or of other code.
        computed: names of constants that may be missing.

    Raises:
        UsageError: transformers is not installed, or weights are missing or of unexpected shapes.
    """
    transformers = import_extra("transformers", "--verify")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    name = kind.__name__
    try:
        model, info = kind.from_pretrained(path, output_loading_info=True, local_files_only=True)
    except Exception as error:  # versions of transformers differ in what they raise
        raise UsageError(f"{path}: {name} of transformers refuses it ({error})") from error
    for state in ("missing_keys", "mismatched_keys"):
        names = [str(key) for key in sorted(info.get(state, ())) if key not in computed]
        if names:
            raise UsageError(
                f"{path}: {name} reports {state.replace('_', ' ')}: {', '.join(names[:5])}"
            )
    return model.float().eval()


def _read_safetensors(path: str) -> ForeignParameters:
    safetensors = import_extra("safetensors.torch", path)
    try:
        return safetensors.load_file(path)
    except Exception as error:  # a damaged file can raise anything
        raise UsageError(f"{path}: cannot be read as safetensors ({error})") from error


def reference(
    load: Callable[[], nn.Module],
    description: str,
    numbers: Mapping[str, Tensor],
    missing: int = 0,
    start: Optional[int] = None,
    segments: bool = False,
    labels: bool = False,
) -> ForeignModel:
    """The logits of a folder, given tokens and segments, or sources and targets, by our numbers.

    Args:
        numbers: by side, the folder's number of each symbol of our dictionary, (V,); symbols that
            it lacks have the highest.
        missing: how many it lacks; a translation model takes them for padding, others for zeros.
        start: the folder's number of the token that begins a translation; None for other models.
    """

    def logits(tokens: Tensor, other: Tensor) -> Tensor:
        model: Any = load()
        by_side = [*numbers.values()]
        first, last = by_side[0], by_side[-1]
        known = len(last) - missing
        inputs = {"attention_mask": tokens.ne(PAD).long()}
        if start is not None:
            first, last = (torch.where(x < known, x, x[PAD]) for x in (first, last))
            inputs["decoder_input_ids"] = last[other]
            inputs["decoder_input_ids"][:, 0] = start
        elif missing:
            embedding = model.get_input_embeddings()
            rows = embedding.weight.detach()[:known]
            zeros = rows.new_zeros(missing, rows.size(1))  # vectors of symbols that a class lacks
            embedding.weight = nn.Parameter(torch.cat((rows, zeros)), requires_grad=False)
        if segments:
            inputs["token_type_ids"] = other
        with torch.no_grad():
            out = model(input_ids=first[tokens], **inputs).logits
        if labels:
            return out
        if start is None and missing:
            out = torch.cat((out[..., :known], out.new_zeros(*out.shape[:-1], missing)), dim=-1)
        return out[..., last]

    return ForeignModel(logits, description)
