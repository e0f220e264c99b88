"""Positions that come with the data, for ``--position-ids column``: files beside the tokens.

``train.de-en.de.positions`` beside ``train.de-en.de.bin`` has the positions of the source of a
translation task; ``train.positions`` beside ``train.bin`` has the positions of a language model.
Each line has a number for every token of the same line of the data, ``</s>`` included; in a
language model the number is the position of the input from which the token is predicted.
"""

import os
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

import numpy as np
import torch
from fairseq import utils
from fairseq.data import TokenBlockDataset
from fairseq.data.base_wrapper_dataset import BaseWrapperDataset
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.lines import read_lines
from fairseq_posenc.checkpoints.settings import task_settings
from fairseq_posenc.encodings.position_ids import FLAG, POSITION_RULES
from fairseq_posenc.flags.options import option
from fairseq_posenc.flags.settings import refuse_unless_off

#: What the names of the files end with.
SUFFIX = ".positions"
#: fairseq's flags that change the tokens of a line, and the values that do not.
_UNCHANGED = {"shorten_method": "none", "add_bos_token": False, "truncate_source": False}


class Column:
    """Positions of the tokens of each line.

    Args:
        path: the file.
        sizes: tokens of every line.
        most: the number of positions that the model has.

    Attributes:
        sizes: (N,) numbers of every line.

    Raises:
        UsageError: there is no file, or a line does not have a position of the model for each
            token.
    """

    def __init__(self, path: str, sizes: Sequence[int], most: int) -> None:
        self.sizes = np.asarray(sizes, dtype=np.int64)
        if not os.path.isfile(path):
            raise UsageError(
                f"{FLAG} column: {path}: no such file; give one with the positions of each line of "
                "the data, or another rule"
            )
        lines = list(read_lines(path))
        if len(lines) != len(self.sizes):
            raise UsageError(
                f"{path}: has {len(lines)} lines, and the data {len(self.sizes)}; give one for each"
            )
        self.lines = [
            _positions(line, size, most, f"{path}: line {number}")
            for number, (line, size) in enumerate(zip(lines, self.sizes.tolist()), 1)
        ]

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: int) -> Tensor:
        return torch.from_numpy(self.lines[index])


def _positions(line: str, size: int, most: int, where: str) -> np.ndarray:
    """The numbers, all below *most*, of a line with *size* tokens, (S), int64."""
    words = line.split()
    wrong = next((word for word in words if not word.isdecimal() or len(word) > 9), None)
    if wrong is not None:
        raise UsageError(f"{where}: {wrong!r} is no position; give numbers from 0 on")
    numbers = np.array(words, dtype=np.int64)
    beyond = numbers[numbers >= most]
    if beyond.size:
        raise UsageError(
            f"{where}: {beyond[0]} is beyond the {most} positions of the model; give smaller "
            "numbers, or a model with more positions"
        )
    if len(words) != size:
        raise UsageError(
            f"{where}: {len(words)} positions for {size} tokens; give one for each token of the "
            "data, </s> included"
        )
    return numbers


class PositionedDataset(BaseWrapperDataset):
    """A data set whose batches have ``position_ids`` beside ``src_tokens``.

    Args:
        dataset: one of fairseq's, whose samples and batches have an ``id``.
        column: positions by that number.
        padding: number of the padding symbol.
    """

    def __init__(self, dataset: Any, column: Any, padding: int) -> None:
        super().__init__(dataset)
        self.column, self.padding = column, padding

    def __getattr__(self, name: str) -> Any:
        if name == "dataset":  # before the constructor has run, as in copies
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def collater(self, samples: Any, *args: Any, **kwargs: Any) -> Dict[str, Any]:
        """fairseq's batch, with positions (B, S), 0 at padding, wherever that is."""
        batch = self.dataset.collater(samples, *args, **kwargs)
        if batch:
            tokens = batch["net_input"]["src_tokens"]
            rows = [self.column[index] for index in batch["id"].tolist()]
            positions = torch.zeros_like(tokens)
            positions[tokens.ne(self.padding)] = torch.cat(rows).to(tokens)
            batch["net_input"]["position_ids"] = positions
        return batch


def _of_source(task: Any, split: str, folder: str) -> PositionedDataset:
    """A translation data set with positions of the source."""
    dataset, source, target = task.datasets[split], task.cfg.source_lang, task.cfg.target_lang
    names = [f"{split}.{pair}.{source}" for pair in (f"{source}-{target}", f"{target}-{source}")]
    name = next((n for n in names if os.path.isfile(os.path.join(folder, f"{n}.idx"))), names[0])
    path = os.path.join(folder, name + SUFFIX)
    column = Column(path, dataset.src_sizes, task.positions_there)
    return PositionedDataset(dataset, column, task.source_dictionary.pad())


def _of_text(task: Any, split: str, folder: str) -> PositionedDataset:
    """A language model's data set, with positions in the same blocks as tokens."""
    dataset = task.datasets[split]
    blocks, args = dataset.dataset, task.args
    path = os.path.join(folder, split + SUFFIX)
    column = Column(path, blocks.dataset.sizes, task.positions_there)
    mode, length = args.sample_break_mode, args.tokens_per_sample
    positions = TokenBlockDataset(column, column.sizes, length, pad=0, eos=0, break_mode=mode)
    return PositionedDataset(dataset, positions, task.source_dictionary.pad())


#: By task, what reads its data, and the setting with the number of positions of that side.
_READERS: Dict[str, Tuple[Callable[..., PositionedDataset], str]] = {
    "translation": (_of_source, "max_source_positions"),
    "language_modeling": (_of_text, "max_target_positions"),
}


def _name(task: FairseqTask) -> Optional[str]:
    settings = task_settings(task)
    return option(settings, "_name") or option(settings, "task")


def noting_columns(build_model: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """Note, in a task, that its model reads positions that come with the data."""

    # fairseq looks for the name of the last argument
    def wrapper(task: Any, cfg: Any, from_checkpoint: bool = False) -> nn.Module:
        model = build_model(task, cfg, from_checkpoint)
        settings: Any = getattr(model, "completed_settings", None)
        rule = getattr(settings, "position_ids", None)
        if rule is not None and POSITION_RULES[rule].thing.from_data:
            if _name(task) not in _READERS:
                raise UsageError(
                    f"{FLAG} {rule}: --task {_name(task)} has no positions beside its data; give "
                    f"--task {' or '.join(_READERS)}, or another rule"
                )
            reason = f"{FLAG} {rule} has a number for each token of the data"
            refuse_unless_off(task_settings(task), _UNCHANGED, reason)
            # a task without this number has a model that reads no positions
            task.positions_there = int(getattr(settings, _READERS[str(_name(task))][1]))
        return model

    return wrapper


def adding_columns(load_dataset: Callable[..., None]) -> Callable[..., None]:
    """Read the positions beside a split that a task loads, if its model reads them."""

    def wrapper(task: Any, split: str, epoch: int = 1, *args: Any, **kwargs: Any) -> None:
        load_dataset(task, split, epoch, *args, **kwargs)
        if getattr(task, "positions_there", 0):
            settings = task_settings(task)
            folders = utils.split_paths(settings.data)
            if split != option(settings, "train_subset", split):
                folders = folders[:1]  # as in TranslationTask
            folder = folders[(epoch - 1) % len(folders)]
            read, _ = _READERS[str(_name(task))]
            task.datasets[split] = read(task, split, folder)

    return wrapper
