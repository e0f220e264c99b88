"""Model folders of the ``transformers`` library: reading, checking, writing and running them.

Reading ``pytorch_model.bin`` only needs PyTorch, reading ``model.safetensors`` needs the package
``safetensors``, and running a model for ``--verify`` needs ``transformers``.

Versions of the library disagree on folders that contradict themselves.  If config.json ties the
output projection to the embedding, but the weights hold a separate projection, version 4 uses the
embedding, and version 5 the separate projection.  Such folders are refused.
"""

import os
from pathlib import Path
from types import MappingProxyType
from typing import Any, Callable, Collection, Dict, List, Mapping, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import json_text, read_json_object
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.checkpoints.reading import check_tensors, load_file
from fairseq_posenc.exchange.formats import ForeignModel
from fairseq_posenc.exchange.huggingface.table import TransformersClass
from fairseq_posenc.exchange.reader import LEADING, Config, ForeignParameters, Vocabulary
from fairseq_posenc.models.kinds import PAD
from fairseq_posenc.serving.transformers_tokenizer import numbers_in

_CONFIG = "config.json"
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_AS_ONE = " (weights split into several files must be saved as one)"
#: The number of rows of an embedding is often rounded up to a multiple of one of these numbers.
_MULTIPLES = (8, 16, 32, 64, 128, 256, 512)


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
        aliases: for each alias of an entry in config.json, the name that replaces the alias.

    Raises:
        UsageError: the folder has a different type of model, or a file is missing or unreadable.
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


def weights_file(path: str, names: Collection[str] = _WEIGHTS, advice: str = _AS_ONE) -> str:
    """The path of the weights in a folder; a UsageError lists the possible *names* of the file."""
    files = (os.path.join(path, name) for name in names)
    found = next(filter(os.path.isfile, files), None)
    if found is None:
        raise UsageError(f"{path}: has no weights; it needs {' or '.join(names)}{advice}")
    return found


def read_weights(path: str) -> ForeignParameters:
    """The tensors in a file of weights, by name; refuse a file with anything else."""
    read = _read_safetensors if path.endswith("safetensors") else load_file
    return check_tensors(read(path), path)


def with_prefix(parameters: ForeignParameters, name: str) -> ForeignParameters:
    """Add the first component of *name* as a prefix to all names, if an older file left it out."""
    first, _, rest = name.partition(".")
    if name in parameters or rest not in parameters:
        return dict(parameters)
    return {f"{first}.{theirs}": tensor for theirs, tensor in parameters.items()}


def write_weights(path: str, entries: Dict[str, Any], parameters: ForeignParameters) -> None:
    """Write the configuration and the weights."""
    Path(path, _CONFIG).write_text(json_text(entries), "utf-8")
    write_safetensors(os.path.join(path, "model.safetensors"), parameters)


def write_safetensors(path: str, parameters: ForeignParameters) -> None:
    """Write a file of tensors."""
    safetensors = import_extra("safetensors.torch", os.path.basename(path))
    tensors = {name: value.contiguous() for name, value in parameters.items()}
    Path(path).write_bytes(safetensors.save(tensors, metadata={"format": "pt"}))


def load_with(kind: Any, path: str, computed: Collection[str] = ()) -> nn.Module:
    """Load a folder with ``from_pretrained`` of a class, in evaluation mode.

    Args:
        kind: the class, from transformers or from other code.
        computed: names of constants that the file may lack.

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
        raise UsageError(f"{path}: {name} of transformers cannot load it ({error})") from error
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


def agreed(
    source: TransformersClass, folder: Folder, vocabulary: Vocabulary
) -> Tuple[Folder, List[str]]:
    """Check a folder; return it, with embeddings cut to the size of the vocabulary, and notes.

    Raises:
        UsageError: config.json, the tensors and the symbols contradict each other.
    """
    tensors = dict(folder.parameters)
    if not source.shared:
        tensors = with_prefix(tensors, source.rows[0])
    tensors.update({n: tensors[n].flatten() for n in source.output_biases if n in tensors})
    known = len(vocabulary.order) - vocabulary.missing
    notes = _check_numbers(folder.config, vocabulary, known)
    present = [name for name in source.rows if name in tensors]
    if not present:
        return folder._replace(parameters=tensors), notes
    first = present[0]
    rows = len(tensors[first]) if tensors[first].dim() else 1
    given = folder.config.length("vocab_size", rows)
    if given != rows:
        raise UsageError(
            f"{folder.config.path}: vocab_size is {given}, but {first} in {folder.weights} has "
            f"{rows} rows"
        )
    # unexplained rows beyond the vocabulary are refused when they are read
    if rows > known and source.padded and _is_explained(folder, vocabulary, tensors[first]):
        for name in present:
            if tensors[name].shape[:1] == (rows,):
                notes.append(f"left out {rows - known} rows of {name} that have no symbol")
                tensors[name] = tensors[name][:known]
    return folder._replace(parameters=tensors), notes


def _check_numbers(config: Config, vocabulary: Vocabulary, known: int) -> List[str]:
    """Refuse ids of special tokens that are not in the vocabulary.

    Returns: notes on roles that config.json and the tokenizer give to different symbols.
    """
    roles, notes = {"eos_token_id": "</s>", "pad_token_id": "<pad>"}, []
    for entry, given in config.entries.items():
        if not entry.endswith("_token_id") or given is None:
            continue
        several = isinstance(given, list) and given and entry.endswith("eos_token_id")
        numbers = given if several else [given]
        for number in numbers:
            whole = isinstance(number, int) and not isinstance(number, bool)
            if not whole or not 0 <= number < known:
                raise UsageError(
                    f"{config.path}: {entry} is {given!r}; it must be the number of a symbol, from "
                    f"0 to {known - 1}"
                )
        ours = roles.get(entry, "")
        if ours in vocabulary.names:
            number = int(vocabulary.order[LEADING.index(ours)])
            if number not in numbers:
                notes.append(
                    f"{entry} in config.json is {given}, but the tokenizer has number {number}, "
                    f"{vocabulary.names[ours]!r}, in this role; the latter becomes {ours}"
                )
    return notes


def _is_explained(folder: Folder, vocabulary: Vocabulary, table: Tensor) -> bool:
    """True if rows beyond the vocabulary copy the row of ``<unk>``, or only round the size up."""
    known = len(vocabulary.order) - vocabulary.missing
    unknown = int(vocabulary.order[LEADING.index("<unk>")])
    if unknown < known and bool((table[known:] == table[unknown]).all()):
        return True  # an export writes such rows for symbols that the dictionary lacks
    tokenizer = os.path.join(folder.path, "tokenizer.json")
    if os.path.isfile(tokenizer) and len(numbers_in(tokenizer)) > known:
        return False
    largest = max(_MULTIPLES[0], len(table) // 16)
    return any(-(-known // m) * m == len(table) for m in _MULTIPLES if m <= largest)


def has_own_output(source: TransformersClass, folder: Folder) -> bool:
    """Whether the output projection is not tied; refuse weights that contradict config.json."""
    tensors, names = folder.parameters, [stack.embedding for stack in source.stacks]
    tied = source.tied(folder.config)
    last = names[-1] if names[-1] in tensors or not source.shared else source.shared
    usual, *others = source.output_biases or ("",)
    pairs = [(source.output, last), *((other, usual) for other in others)]
    if source.shares(folder.config):
        pairs += [(name, source.shared) for name in names]
    for own, shared in pairs if tied else ():
        both = own in tensors and shared in tensors
        if both and not torch.equal(tensors[own].float(), tensors[shared].float()):
            raise UsageError(
                f"{folder.weights}: {own} and {shared} differ, though tie_word_embeddings is true "
                "(in config.json, or by default if it is absent); set it to false in config.json, "
                "or correct the weights"
            )
    if not tied and source.output not in tensors:
        raise UsageError(
            f"{folder.weights}: has no tensor {source.output}, though tie_word_embeddings is false "
            "(in config.json, or by default if it is absent)"
        )
    return not tied


def reference(
    load: Callable[[], nn.Module],
    description: str,
    numbers: Mapping[str, Tensor],
    missing: int = 0,
    start: Optional[int] = None,
    segments: bool = False,
    labels: bool = False,
) -> ForeignModel:
    """The model in a folder as a reference that takes and returns tensors in our numbering.

    Args:
        numbers: for each side, the folder's number of each symbol of our dictionary, (V,); symbols
            that the folder lacks have the highest numbers.
        missing: the number of symbols that the folder lacks; they are read as padding (translation)
            or as zero vectors (other models).
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
            zeros = rows.new_zeros(missing, rows.size(1))  # vectors of missing symbols
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
