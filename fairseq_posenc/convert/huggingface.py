"""Folders in the form of the ``transformers`` library: config.json, weights, vocabulary.

Reading needs nothing but PyTorch for ``pytorch_model.bin``, and the ``safetensors`` package for
``model.safetensors``; running a model, for ``--verify``, needs ``transformers``.
"""

import importlib
import json
import os
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn

from fairseq_posenc.checkpoints.reading import load_file
from fairseq_posenc.convert.dictionary import MASK
from fairseq_posenc.convert.files import write_bytes, write_text
from fairseq_posenc.errors import UsageError

_WEIGHTS = ("model.safetensors", "pytorch_model.bin")

#: fairseq's symbol, the role in tokenizer_config.json, and what it is usually called.
_ROLES = (
    ("<s>", "cls_token", "[CLS]"),
    ("<pad>", "pad_token", "[PAD]"),
    ("</s>", "sep_token", "[SEP]"),
    ("<unk>", "unk_token", "[UNK]"),
    (MASK, "mask_token", "[MASK]"),
)

#: The order in which vocab.txt starts.
_FIRST = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

#: Names of activations: theirs, ours.
_ACTIVATIONS = (
    ("gelu", "gelu"),
    ("relu", "relu"),
    ("tanh", "tanh"),
    ("linear", "linear"),
    ("gelu_new", "gelu_accurate"),
    ("gelu_new", "gelu_fast"),
    ("gelu_fast", "gelu_accurate"),
    ("gelu_pytorch_tanh", "gelu_accurate"),
)


class Folder(NamedTuple):
    """What was read from a folder.

    Args:
        path: the folder.
        config: config.json.
        weights: path of the weights.
        state: the weights, by name.
    """

    path: str
    config: Dict[str, Any]
    weights: str
    state: Dict[str, Tensor]


def read_folder(path: str, model_type: str) -> Folder:
    """Read configuration and weights.

    Args:
        path: the folder.
        model_type: what config.json has to say.

    Raises:
        UsageError: it is another type of model, or a file is missing or unreadable.
    """
    if os.path.isfile(path):
        raise UsageError(f"{path}: is a file; give the folder that save_pretrained wrote")
    config = _read_json(path, "config.json")
    if config.get("model_type") != model_type:
        raise UsageError(
            f"{os.path.join(path, 'config.json')}: model_type is {config.get('model_type')!r}, "
            f"but this format reads {model_type!r} only"
        )
    for name in _WEIGHTS:
        weights = os.path.join(path, name)
        if os.path.isfile(weights):
            read = _read_safetensors if name.endswith("safetensors") else load_file
            return Folder(path, config, weights, read(weights))
    raise UsageError(
        f"{path}: has no weights; it needs {' or '.join(_WEIGHTS)} (weights split into several "
        "files have to be saved as one)"
    )


def read_vocabulary(path: str, file: Optional[str]) -> Tuple[List[str], Dict[str, str], str]:
    """Read the vocabulary of a folder.

    Args:
        path: the folder.
        file: a vocab.txt that lies elsewhere.

    Returns:
        the symbol of each number, the folder's name of each of fairseq's special symbols, and the
        file.

    Raises:
        UsageError: there is none.
    """
    settings = {}
    if os.path.isfile(os.path.join(path, "tokenizer_config.json")):
        settings = _read_json(path, "tokenizer_config.json")
    special = {ours: _content(settings.get(role) or usual) for ours, role, usual in _ROLES}
    source = file or os.path.join(path, "vocab.txt")
    if file is None and not os.path.isfile(source):
        if os.path.isfile(os.path.join(path, "tokenizer.json")):
            return _fast_vocabulary(path), special, os.path.join(path, "tokenizer.json")
        raise UsageError(
            f"{path}: has neither vocab.txt nor tokenizer.json; if the vocabulary lies elsewhere, "
            "name its vocab.txt with --vocab"
        )
    try:
        with open(source, encoding="utf-8") as lines:
            return [line.rstrip("\n") for line in lines], special, source
    except (OSError, UnicodeError) as error:
        raise UsageError(f"{source}: cannot be read as a vocabulary ({error})") from error


def _fast_vocabulary(path: str) -> List[str]:
    """The symbols in a tokenizer.json, by number."""
    content = _read_json(path, "tokenizer.json")
    try:
        numbers = dict(content["model"]["vocab"])
        numbers.update({token["content"]: token["id"] for token in content["added_tokens"]})
        symbols = sorted(numbers, key=lambda symbol: numbers[symbol])
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{os.path.join(path, 'tokenizer.json')}: has no word-piece vocabulary; "
            "name a vocab.txt with --vocab"
        ) from error
    if [numbers[symbol] for symbol in symbols] != list(range(len(symbols))):
        raise UsageError(
            f"{os.path.join(path, 'tokenizer.json')}: its {len(symbols)} symbols are not numbered "
            f"from 0 to {len(symbols) - 1}; name a vocab.txt with --vocab"
        )
    return symbols


def _content(token: Any) -> str:
    """A special token, which some files wrap in a dictionary."""
    return token["content"] if hasattr(token, "keys") else token


def activation_of(folder: Folder) -> str:
    """fairseq's name of ``hidden_act``.

    Raises:
        UsageError: fairseq has no such activation.
    """
    theirs = folder.config.get("hidden_act", "gelu")
    known = dict(reversed(_ACTIVATIONS))  # of two entries the first counts
    if theirs not in known:
        raise UsageError(
            f"{os.path.join(folder.path, 'config.json')}: hidden_act {theirs!r} is none that "
            f"fairseq has ({', '.join(sorted(known))})"
        )
    return known[theirs]


def activation_for(ours: str, source: str) -> str:
    """What ``hidden_act`` is for an activation of ours.

    Raises:
        UsageError: there is none.
    """
    for name, known in _ACTIVATIONS:
        if known == ours:
            return name
    raise UsageError(f"{source}: --activation-fn {ours} has no counterpart in transformers")


def write_folder(
    path: str, config: Dict[str, Any], state: Dict[str, Tensor], symbols: List[str]
) -> None:
    """Write configuration, weights and vocabulary.

    Args:
        path: an existing folder.
        config: content of config.json, but for what follows from the vocabulary.
        state: the weights, rows of the vocabulary in their final order.
        symbols: the vocabulary in that order, as :func:`vocabulary_order` gives it.

    Raises:
        UsageError: safetensors is not installed, or a file cannot be written.
    """
    module = _package("safetensors.torch", "safetensors", "to write model.safetensors")
    config = {**config, "vocab_size": len(symbols), "pad_token_id": symbols.index("[PAD]")}
    write_text(os.path.join(path, "config.json"), _json(config))
    ordinary = symbols[len(_FIRST) :]
    tokenizer = {
        **{role: usual for _, role, usual in _ROLES},
        "tokenizer_class": "RoFormerTokenizer",
        "do_lower_case": all(symbol == symbol.lower() for symbol in ordinary),
    }
    write_text(os.path.join(path, "tokenizer_config.json"), _json(tokenizer))
    write_text(os.path.join(path, "vocab.txt"), "".join(symbol + "\n" for symbol in symbols))
    tensors = {name: value.contiguous() for name, value in state.items()}
    content = module.save(tensors, metadata={"format": "pt"})
    write_bytes(os.path.join(path, "model.safetensors"), content)


def vocabulary_order(symbols: List[str], source: str) -> Tuple[List[str], Tensor]:
    """The usual order of a vocab.txt: five special symbols, then the rest as it was.

    Args:
        symbols: the symbol of each number of ours.
        source: the file they come from, for messages.

    Returns:
        the symbols in the new order, and our number of each.

    Raises:
        UsageError: an ordinary symbol has the name of a special one.
    """
    ours = {usual: name for name, _, usual in _ROLES}
    special = set(ours.values())
    for symbol in symbols:
        if symbol in ours:
            raise UsageError(
                f"{source}: the ordinary symbol {symbol!r} is one that transformers reserves; "
                "rename it"
            )
    first = [symbols.index(ours[name]) for name in _FIRST]
    rest = [number for number, symbol in enumerate(symbols) if symbol not in special]
    return [*_FIRST, *(symbols[number] for number in rest)], torch.tensor([*first, *rest])


def load_model(path: str, architecture: str) -> nn.Module:
    """Load a folder with ``from_pretrained`` of a class of transformers, to evaluate.

    Raises:
        UsageError: transformers is not installed, or does not find all weights in the shapes that
            it wants.
    """
    transformers = _package("transformers", "transformers", "for --verify")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    model, info = getattr(transformers, architecture).from_pretrained(
        path, output_loading_info=True, local_files_only=True
    )
    for kind in ("missing_keys", "mismatched_keys"):
        if info.get(kind):
            names = ", ".join(str(name) for name in sorted(info[kind])[:5])
            raise UsageError(f"{path}: {architecture} reports {kind.replace('_', ' ')}: {names}")
    return model.float().eval()


def _package(module: str, package: str, purpose: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"the Python package {package} is needed {purpose}: pip install {package}"
        ) from error


def _read_safetensors(path: str) -> Dict[str, Tensor]:
    module = _package("safetensors.torch", "safetensors", f"to read {path}")
    try:
        return module.load_file(path)
    except Exception as error:  # whatever a damaged file makes the reader raise
        raise UsageError(f"{path}: cannot be read as safetensors ({error})") from error


def _read_json(folder: str, name: str) -> Dict[str, Any]:
    path = os.path.join(folder, name)
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be read ({error.strerror or error}); give a folder that "
            "save_pretrained wrote"
        ) from error
    except ValueError as error:
        raise UsageError(f"{path}: is no JSON ({error})") from error
    if not hasattr(content, "keys"):
        raise UsageError(f"{path}: holds no JSON object")
    return content


def _json(content: Dict[str, Any]) -> str:
    return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
