"""Model folders in Python: fairseq's hub interfaces, with the text preparation of the folder."""

import functools
import inspect
import os
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple, Union

import torch
import torch.nn.functional as F
from fairseq import hub_utils
from fairseq.hub_utils import GeneratorHubInterface
from fairseq.models.roberta import RobertaHubInterface, RobertaModel
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.packages import load
from fairseq_posenc.checkpoints.loader import checked_device, in_one_line
from fairseq_posenc.checkpoints.settings import task_settings
from fairseq_posenc.flags.options import option
from fairseq_posenc.models.masked_lm import MASKED_LM
from fairseq_posenc.models.segments import special_tokens
from fairseq_posenc.serving.model_folder import CHECKPOINT, ModelFolder
from fairseq_posenc.serving.translation import numbers_of


class FolderTask(NamedTuple):
    """Special properties of the model folders of a task."""

    interface: Any = None  # a class derived from SentenceHubInterface, which is the default
    files: Tuple[str, ...] = ()  # files of --data that `pack` copies besides dictionaries


#: Tasks whose model folders need further files or another hub interface, keyed by task name.
FOLDER_TASKS: Dict[str, FolderTask] = {}
MASK = "<mask>"
#: The BPE that fairseq's RoBERTa downloads unless another is given.
_DEFAULT = "gpt2"


class SentenceHubInterface(RobertaHubInterface):
    """fairseq's interface to a masked language model or a classifier, for a model folder.

    It joins several texts in the same way as the folder's task did in training.

    Attributes:
        longest: the largest number of tokens that the model and the task accept.
        cuts: whether the task truncates longer texts.
    """

    def __init__(self, cfg: Any, task: Any, model: Any, folder: ModelFolder) -> None:
        super().__init__(cfg, task, model)
        settings, self.folder = task_settings(task), folder
        pairs = getattr(model, "reads_pairs", False)
        self._first, self._separator = special_tokens(settings, task.source_dictionary, pairs)
        self.cuts = str(option(settings, "shorten_method")) == "truncate"
        longest: int = model.max_positions()
        self.longest = min(longest, option(settings, "max_positions", longest))

    def encode(self, sentence: str, *addl_sentences: str, no_separator: bool = False) -> Tensor:
        """The token numbers (T,) of one or more texts, truncated if training truncated them.

        Args:
            sentence: raw text.
            addl_sentences: the second text of a pair, and further ones.
            no_separator: leave out the separator of the task.
        """
        found = self.joined((sentence, *addl_sentences), no_separator)
        return found[: self.longest] if self.cuts else found

    def joined(self, texts: Sequence[str], no_separator: bool = False) -> Tensor:
        """As :meth:`encode`, but without truncation."""
        symbols = [self.bpe.encode(text).split() for text in texts]
        return self._numbers(symbols, None if no_separator else self._separator)

    def _numbers(self, texts: Sequence[List[str]], separator: Any) -> Tensor:
        parts = []
        for number, symbols in enumerate(texts):
            before = separator if number else self._first
            parts.append(torch.tensor([] if before is None else [before], dtype=torch.long))
            parts.append(numbers_of(self.task.source_dictionary, symbols, end=True))
        return torch.cat(parts)

    @torch.no_grad()
    def fill_mask(self, masked_input: str, topk: int = 5) -> List[Tuple[str, float, str]]:
        """The most probable symbols in the place of ``<mask>``, best first.

        Args:
            masked_input: raw text with one mask, which is ``<mask>`` or the mask symbol of the
                folder's tokeniser, such as ``[MASK]``.
            topk: number of symbols.

        Returns:
            for each symbol: the text with the mask replaced, the probability, the symbol as text.

        Raises:
            UsageError: there is no mask, or more than one, the text is too long, or the model was
                fine-tuned as a classifier or for answering questions.
        """
        if self.folder.head is not None or folder_task(self.folder.task).interface is not None:
            raise UsageError(
                f"fill_mask: {self.folder.path} was fine-tuned as a classifier or for questions, "
                "not as a language model; give the folder of the model before fine-tuning"
            )
        text = self.bpe.preparation
        spans = masked_input.replace(text.mask, MASK).split(MASK)
        if len(spans) != 2 or topk < 1:
            raise UsageError(
                f"fill_mask: the text has {len(spans) - 1} masks ({MASK}), and topk is {topk}; "
                "give one mask and a topk of at least 1"
            )
        before, after = spans
        # in byte-level BPE, a word's symbol includes the space before it; <mask> replaces both
        start = before.rstrip() if self.folder.text.subwords == "transformers" else before
        parts = [self.bpe.encode(part).split() for part in (start, after)]
        numbers = self._numbers([[*parts[0], MASK, *parts[1]]], None)
        refuse_too_long([numbers], self.longest, "fill_mask")
        place = numbers.eq(self.task.source_dictionary.index(MASK)).nonzero()[0]
        logits = self.model(numbers[None].to(self.device))[0][0, place[0]].float()
        values, found = logits.softmax(-1).topk(min(topk, len(logits)))
        words = [text.restore([self.task.source_dictionary[number]]) for number in found.tolist()]
        texts = [before + word + after for word in words]
        return list(zip(texts, values.tolist(), words))

    def predict(self, head: str, tokens: Tensor, return_logits: bool = False) -> Tensor:
        """The log-probabilities (B, N) of the classes, or the logits.

        Args:
            head: the name of a classification head.
            tokens: the token numbers of one text, (T,), or of several with padding, (B, T).
            return_logits: return the logits, or the head's values if it is a regression.

        Raises:
            UsageError: a text is longer than the model accepts.
        """
        tokens = tokens[None] if tokens.dim() == 1 else tokens
        refuse_too_long(list(tokens), self.longest, "predict")
        logits, _ = self.model(
            tokens.to(self.device), features_only=True, classification_head_name=head
        )
        return logits if return_logits else F.log_softmax(logits, dim=-1)


def refuse_too_long(texts: Sequence[Tensor], longest: int, function: str) -> None:
    """Refuse texts, each of token numbers (T,), that are longer than the model's *longest*."""
    for number, text in enumerate(texts):
        if len(text) > longest:
            raise UsageError(
                f"{function}: text {number} of the list has {len(text)} tokens, but the model "
                f"accepts only {longest}; split the text"
            )


def opened(
    folder: ModelFolder,
    from_pretrained: Callable[..., Dict[str, Any]],
    checkpoint_file: str = "model.pt",
    **settings: Any,
) -> Dict[str, Any]:
    """Load a model folder by fairseq's ``from_pretrained``, and return its result.

    For a masked language model, the result also has ``interface``, which makes its hub interface.

    Args:
        folder: the model folder.
        from_pretrained: fairseq's function.
        checkpoint_file: the name of a checkpoint that replaces the folder's.
        settings: further settings of fairseq.
    """
    folder.checked()
    if settings.get("bpe") in (None, "", _DEFAULT):
        settings.pop("bpe", None)
    settings = {**folder.overrides, "bpe": "model_folder", "model_folder": folder.path, **settings}
    data = os.path.abspath(settings.pop("data"))  # fairseq would join a path that begins with "."
    file = CHECKPOINT if checkpoint_file == "model.pt" else checkpoint_file  # fairseq's default
    with in_one_line(folder.path, "pack the model again"):
        found = from_pretrained(folder.path, file, data, **settings)
    _check_head(folder, found["models"][0])
    if isinstance(found["models"][0], RobertaModel):
        interface = folder_task(folder.task).interface or SentenceHubInterface
        found["interface"] = functools.partial(interface, folder=folder)
    return found


def _check_head(folder: ModelFolder, model: Any) -> None:
    """Refuse a folder if model.json and the model differ in the head or its number of outputs."""
    head = folder.head
    if head is None:
        return
    known = model.classification_heads
    size = known[head.name].out_proj.out_features if head.name in known else 0
    if size != len(head.labels):
        raise UsageError(
            f"{folder.path}: model.json names {len(head.labels)} outputs of the head {head.name}, "
            f"but the checkpoint has {size}; pack the model again"
        )


def folder_task(name: str) -> FolderTask:
    """The special properties that are registered for a task's model folders, or the defaults."""
    load("serving")
    return FOLDER_TASKS.get(name, FolderTask())


def load_folder(folder: ModelFolder, device: Union[str, torch.device]) -> nn.Module:
    """The hub interface of a model folder, in evaluation mode on a device."""
    place = checked_device(device)
    heads: Any = {"load_checkpoint_heads": True} if folder.task in MASKED_LM.tasks else {}
    found = opened(folder, inspect.unwrap(hub_utils.from_pretrained), **heads)
    cfg, task, models = found["args"], found["task"], found["models"]
    interface = found.get("interface")
    hub = interface(cfg, task, models[0]) if interface else GeneratorHubInterface(cfg, task, models)
    return hub.eval().to(place)
