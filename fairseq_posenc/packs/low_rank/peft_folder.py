"""Adapters of the library PEFT: a folder with low-rank matrices and their settings.

The matrices of a module M of the base are ``base_model.model.M.lora_A.weight`` (r, C_in) and
``base_model.model.M.lora_B.weight`` (C_out, r).  They add (α / r) B A to the weight (C_out, C_in)
of M (Hu et al. 2021, arXiv 2106.09685, Eq. 3), or its transpose to a weight (C_in, C_out).
"""

import contextlib
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any, Collection, Dict, Iterator, Mapping, NamedTuple, Optional

from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import json_text, read_json_object
from fairseq_posenc.checkpoints.reading import refuse_nonfinite
from fairseq_posenc.exchange.formats import FORMATS, Wanted
from fairseq_posenc.exchange.huggingface import folder as hf
from fairseq_posenc.exchange.reader import Config, ForeignParameters

CONFIG = "adapter_config.json"
_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
_KEY = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")
#: Entries that may have any value: we use them, or they matter only in training.
_INERT = (
    *("peft_type", "task_type", "auto_mapping", "peft_version", "base_model_name_or_path"),
    *("revision", "inference_mode", "r", "lora_alpha", "rank_pattern", "alpha_pattern"),
    *("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern"),
    *("lora_dropout", "fan_in_fan_out", "megatron_core", "qalora_group_size", "runtime_config"),
)
#: For other entries, the values that do not change Eq. 3, besides false and empty values.
_PLAIN: Mapping[str, Collection[Any]] = {
    "bias": ("none",),
    "init_lora_weights": (True, "gaussian", "eva", "orthogonal"),  # others change the base
}
#: Suffixes of the files that a base has besides its weights.
_TEXTS = (".json", ".txt", ".model")


class LowRank(NamedTuple):
    """The matrices of one module, and the factor on their product."""

    a: Tensor  # (r, C_in)
    b: Tensor  # (C_out, r)
    scale: float  # α / r

    @property
    def rank(self) -> int:
        """r."""
        return len(self.a)

    @property
    def alpha(self) -> float:
        """α, as an int if it is a whole number."""
        alpha = self.scale * self.rank
        return int(alpha) if alpha == int(alpha) else alpha


def write_adapter(
    folder: str,
    matrices: Mapping[str, LowRank],
    modules: Mapping[str, Collection[str]],
    entries: Mapping[str, Any],
) -> None:
    """Write an adapter that PEFT loads, with further *entries* of adapter_config.json.

    *matrices* is keyed by module names; *modules* maps ends of names to all names with that end.
    """
    ends = [end for end, names in modules.items() if set(names) & set(matrices)]
    within = tuple(f".{end}" for end in ends)
    matched = {name for names in modules.values() for name in names if name.endswith(within)}
    named = {end: next(name for name in modules[end] if name in matrices) for end in ends}
    if matched != set(matrices):  # these ends also match modules without matrices
        named = {name: name for name in matrices}
    ranks = {shown: matrices[name].rank for shown, name in named.items()}
    usual = max(set(ranks.values()), key=list(ranks.values()).count)
    others = {shown: named[shown] for shown, rank in ranks.items() if rank != usual}
    content = {
        "peft_type": "LORA",
        "inference_mode": True,
        "r": usual,
        "lora_alpha": next(x.alpha for x in matrices.values() if x.rank == usual),
        "lora_dropout": 0.0,
        "target_modules": sorted(named),
        "rank_pattern": {shown: matrices[name].rank for shown, name in others.items()},
        "alpha_pattern": {shown: matrices[name].alpha for shown, name in others.items()},
        "bias": "none",
        **entries,
    }
    tensors = {
        f"base_model.model.{name}.lora_{part}.weight": x
        for name, pair in matrices.items()
        for part, x in (("A", pair.a), ("B", pair.b))
    }
    Path(folder, CONFIG).write_text(json_text(content), "utf-8")
    hf.write_safetensors(os.path.join(folder, _WEIGHTS[0]), tensors)


def read_adapter(folder: str) -> Dict[str, LowRank]:
    """The matrices of an adapter, keyed by the names of modules in the base.

    Raises:
        UsageError: a file is missing or damaged, or the adapter changes more than Eq. 3 does.
    """
    config = _config(folder)
    file = hf.weights_file(folder, _WEIGHTS, advice="")
    parts: Dict[str, Dict[str, Tensor]] = {}
    for name, value in hf.read_weights(file).items():
        match = _KEY.fullmatch(name)
        if match is None or value.dim() != 2:
            raise UsageError(
                f"{file}: unexpected tensor {name}; only lora_A and lora_B of linear modules can "
                "be read"
            )
        refuse_nonfinite(value, name, file)
        parts.setdefault(match[1], {})[match[2]] = value
    if not parts:
        raise UsageError(f"{file}: holds no low-rank matrices")
    return {name: _low_rank(config, file, name, both) for name, both in parts.items()}


def _config(folder: str) -> Config:
    """The settings of an adapter; refuses an adapter that does more than add matrices."""
    file = os.path.join(folder, CONFIG)
    config = Config(file, read_json_object(file, f"{file}:"))
    config.one_of("peft_type", "", ("LORA",))
    for name, value in config.entries.items():
        known = _PLAIN.get(name, ())
        if name not in _INERT and value and value not in known:
            supported = f"; known: {', '.join(map(str, known))}" if known else "; drop it"
            raise UsageError(f"{file}: {name} {value} is not supported{supported}")
    return config


def _low_rank(config: Config, file: str, name: str, both: Mapping[str, Tensor]) -> LowRank:
    rank = _of_pattern(config, "rank_pattern", name, config.size("r", 8))
    alpha = _of_pattern(config, "alpha_pattern", name, config.factor("lora_alpha", 8))
    a, b = both.get("A"), both.get("B")
    if a is None or b is None or len(a) != rank or b.size(1) != rank:
        raise UsageError(
            f"{file}: the matrices of {name} are not lora_A and lora_B of rank {rank}, the "
            f"rank in {config.path}"
        )
    return LowRank(a, b, alpha / rank)


def _of_pattern(config: Config, entry: str, name: str, usual: Any) -> Any:
    """The value of the first key that matches the end of module *name*, else *usual*."""
    pattern: Dict[str, Any] = config.get(entry, {})
    try:
        key = next((key for key in pattern if re.match(rf"(.*\.)?({key})$", name)), None)
        value = usual if key is None else pattern[key]
    except (re.error, TypeError) as error:
        raise UsageError(f"{config.path}: {entry} {pattern} cannot be read ({error})") from error
    return config._replace(entries={entry: value}).factor(entry, usual)


def merge(adapter: str, base: str, out: str) -> None:
    """Write the base with an adapter merged into its weights, in float32.

    All three arguments are folders.

    Raises:
        UsageError: a file cannot be read, or the adapter belongs to another base.
    """
    matrices = read_adapter(adapter)
    file = hf.weights_file(base)
    tensors = {
        name: x.float() if x.is_floating_point() else x for name, x in hf.read_weights(file).items()
    }
    path = os.path.join(base, "config.json")
    entries = read_json_object(path, f"{path}:")
    importers = [entry.importer for entry in FORMATS.values() if entry.importer is not None]
    transposed = any(entries.get("model_type") in each.transposed for each in importers)
    for module, pair in matrices.items():
        name = _weight_of(module, tensors)
        if name is None:
            raise UsageError(
                f"{adapter}: adapts {module}, which {file} lacks; give the correct --peft-base"
            )
        product = pair.scale * (pair.b.float() @ pair.a.float())
        product = product.t() if transposed else product
        if product.shape != tensors[name].shape:
            sizes = " and ".join(" x ".join(map(str, x.shape)) for x in (product, tensors[name]))
            raise UsageError(
                f"{adapter}: adapts {module}, but sizes differ from those in {file} ({sizes}); "
                "give the adapter's own base by --peft-base"
            )
        tensors[name] = tensors[name] + product
    for text in Path(base).iterdir():
        if text.is_file() and text.name.endswith(_TEXTS):
            shutil.copy(text, out)
    entries.pop("dtype", None)
    hf.write_weights(out, {**entries, "torch_dtype": "float32"}, tensors)


def _weight_of(module: str, tensors: ForeignParameters) -> Optional[str]:
    """The name of a module's weight, or None; older files leave out the first part of names."""
    name = f"{module}.weight"
    return next((n for n in (name, name.partition(".")[2]) if n in tensors), None)


def is_adapter(folder: str) -> bool:
    """True for the folder of an adapter without a whole model."""
    files = {name: os.path.isfile(os.path.join(folder, name)) for name in (CONFIG, "config.json")}
    return files[CONFIG] and not files["config.json"]


@contextlib.contextmanager
def merged_folder(wanted: Wanted) -> Iterator[str]:
    """A temporary folder with the whole model: the base, changed by an adapter.

    Raises:
        UsageError: as :func:`merge`.
    """
    source, base = wanted.path, wanted.get("peft_base")
    named = _config(source).get("base_model_name_or_path", "")
    whole = named if base is None else base
    if not os.path.isdir(whole):
        said = f"{source}: its base {named!r}" if base is None else f"--peft-base {base}"
        raise UsageError(f"{said} is no folder here; give the folder of the base by --peft-base")
    with tempfile.TemporaryDirectory() as folder:
        merge(source, whole, folder)
        try:
            yield folder
        except UsageError as error:
            raise UsageError(error.message.replace(folder, whole)) from error
