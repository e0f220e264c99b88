"""Masked language models and classifiers of model folders, from Python."""

import functools
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.flags.options import option
from fairseq_posenc.serving.inputs import (
    FolderModel,
    batches_by_tokens,
    check_texts,
    numbers_of,
    refuse_below_one,
    refuse_too_long,
    tokens_of,
)
from fairseq_posenc.serving.model_folder import Head, ModelFolder, refuse_without_head
from fairseq_posenc.serving.scores import BATCH, Scores

MASK = "<mask>"
_CLASSIFIERS = "sentence_prediction"

#: A text, or a pair of texts.
Example = Union[str, Tuple[str, ...]]
Complain = Callable[[int, str], None]


class Filled(NamedTuple):
    """A symbol in the place of the mask.

    Args:
        token: the symbol.
        probability: the probability of the symbol.
        text: the text with it in place of the mask.
    """

    token: str
    probability: float
    text: str


class Prediction(NamedTuple):
    """The prediction of a classifier for a text or a pair.

    Args:
        label: the most probable label; a regression has None.
        score: the probability of the label, or the value of a regression.
        scores: the probabilities of all labels, or the value.
    """

    label: Optional[str]
    score: float
    scores: Dict[str, float]


def _check_head(folder: ModelFolder, model: Any) -> None:
    """Refuse a description with another head, or with other classes, than the model has."""
    head = folder.head
    if head is None:
        return
    known = model.classification_heads
    size = known[head.name].out_proj.out_features if head.name in known else 0
    if size != len(head.labels):
        raise UsageError(
            f"{folder.path}: model.json names {len(head.labels)} outputs of the head {head.name}, "
            f"and the checkpoint has {size}; pack the model again"
        )


def _on_standard_error(number: int, reason: str) -> None:
    print(f"text {number} of the list: {reason}", file=sys.stderr)


class MaskedLanguageModel(FolderModel):
    """A masked language model or a classifier; arguments as for :class:`FolderModel`."""

    def __init__(self, folder: ModelFolder, device: str = "cpu") -> None:
        super().__init__(folder, device)
        _check_head(folder, self.model)
        settings = self.task.cfg
        self._is_classifier = folder.task == _CLASSIFIERS
        if self._is_classifier:
            self._first, self._separator = settings.init_token, settings.separator_token
        else:  # BERT's format where there are segments, as in imported models; else RoBERTa's
            one = getattr(self.model, "reads_pairs", False)
            one = (
                one and option(settings, "separator_token") is None
            )  # a setting of masked_lm_pairs
            self._first = self._dictionary.bos()
            self._separator = None if one else self._dictionary.eos()
        self._cuts = str(option(settings, "shorten_method")) == "truncate"
        longest: int = self.model.max_positions()
        self._longest = min(longest, option(settings, "max_positions", longest))

    # --- input

    def tokens(self, text: str, second: Optional[str] = None) -> List[str]:
        """The symbols that the model reads, special ones included.

        Args:
            text: raw text; in that of a masked language model, ``<mask>`` is the mask.
            second: the second text of a pair.
        """
        return tokens_of(self._dictionary, self._numbers(_example(text, second)))

    def _numbers(self, texts: Tuple[str, ...]) -> Tensor:
        """A text or a pair by number (T,), as ``--task sentence_prediction`` puts it together."""
        start = [] if self._first is None else [self._first]
        separator = [] if self._separator is None else [self._separator]
        parts = []
        for number, text in enumerate(texts):
            parts.append(torch.tensor(separator if number else start, dtype=torch.long))
            parts.append(numbers_of(self._dictionary, self._symbols(text), end=True))
        return torch.cat(parts)

    def _symbols(self, text: str) -> List[str]:
        if self._folder.head is not None:  # the texts of a classifier have no masks
            return self._text.source(text)
        spans = text.replace(self._text.mask, MASK).split(MASK)
        if self._folder.text.subwords == "transformers":
            # in byte-level BPE, the symbol of a word holds the space before it; so does the mask
            spans[:-1] = [span.rstrip() for span in spans[:-1]]
        parts = [self._text.source(span) for span in spans]
        return parts[0] + [symbol for part in parts[1:] for symbol in [MASK, *part]]

    # --- language model

    @torch.no_grad()
    def fill_mask(self, text: str, top_k: int = 5) -> List[Filled]:
        """The most probable symbols in the place of ``<mask>``, best first.

        Args:
            text: raw text with one ``<mask>``, or the mask of the tokeniser, such as ``[MASK]``.
            top_k: number of symbols.

        Raises:
            UsageError: there is no mask, or more than one, the text is too long, or the model was
                fine-tuned as a classifier.
        """
        self._check_lm_head("fill_mask")
        refuse_below_one("fill_mask", top_k=top_k)
        numbers = self._numbers((text,))
        refuse_too_long([numbers], self._longest, "fill_mask")
        places = numbers.eq(self._dictionary.index(MASK)).nonzero().flatten().tolist()
        if len(places) != 1:
            raise UsageError(f"fill_mask: the text has {len(places)} times {MASK}; give it once")
        logits = self.model(self._batch([numbers]))[0][0, places[0]].float()
        values, found = logits.softmax(-1).topk(min(top_k, len(logits)))
        tokens = tokens_of(self._dictionary, found)
        words = [self._text.words([token]) for token in tokens]
        if self._folder.text.subwords == "transformers":
            words = [word.strip() for word in words]
        before, _, after = text.replace(self._text.mask, MASK).partition(MASK)
        texts = [before + word + after for word in words]
        return [Filled(*each) for each in zip(tokens, values.tolist(), texts)]

    @torch.no_grad()
    def pseudo_log_likelihood(self, texts: Sequence[str]) -> List[Scores]:
        """Log-probabilities of each symbol, masked, given all the others.

        Salazar et al., arXiv 1910.14659, Eq. 1.  It takes a pass of the model for each symbol.

        Args:
            texts: raw text.

        Raises:
            UsageError: *texts* is no list, one is too long, or the model is a classifier.
        """
        self._check_lm_head("pseudo_log_likelihood")
        check_texts(texts, "pseudo_log_likelihood")
        encoded = [self._numbers((text,)) for text in texts]
        refuse_too_long(encoded, self._longest, "pseudo_log_likelihood")
        return [self._pseudo_log_likelihood(numbers) for numbers in encoded]

    def _pseudo_log_likelihood(self, numbers: Tensor) -> Scores:
        places = torch.arange(1, len(numbers) - 1)  # between <s> and </s>
        masked = numbers.repeat(len(places), 1)
        masked[torch.arange(len(places)), places] = self._dictionary.index(MASK)
        found: List[float] = []
        rows = max(BATCH // len(numbers), 1)
        for some, at in zip(masked.split(rows), places.split(rows)):
            if len(at):
                logits = self.model(self._batch(list(some)))[0].float().cpu()
                chosen = logits[torch.arange(len(at)), at].log_softmax(-1)
                found += chosen[torch.arange(len(at)), numbers[at]].tolist()
        return Scores(tokens_of(self._dictionary, numbers[1:-1]), found)

    def _check_lm_head(self, function: str) -> None:
        if self._folder.head is not None:
            raise UsageError(
                f"{function}: {self._folder.path} was fine-tuned as a classifier, not as a "
                "language model; give the folder of the model before fine-tuning"
            )

    # --- features

    @torch.no_grad()
    def extract_features(self, text: str, second: Optional[str] = None) -> Tensor:
        """The states of the last layer (T, C), for the symbols that :meth:`tokens` returns.

        Args:
            text: raw text.
            second: the second text of a pair.

        Raises:
            UsageError: the text is too long.
        """
        numbers = self._numbers(_example(text, second))
        refuse_too_long([numbers], self._longest, "extract_features")
        features: Tensor = self.model(self._batch([numbers]), features_only=True)[0][0]
        return features

    # --- classes

    def predict(
        self,
        examples: Sequence[Example],
        complain: Complain = _on_standard_error,
        max_tokens: int = BATCH,
    ) -> List[Optional[Prediction]]:
        """Classify texts or pairs of texts, in their order.

        Where the model was trained with ``--shorten-method truncate``, texts that are too long are
        cut as in training.

        Args:
            examples: texts, or pairs of texts.
            complain: called with the number, from 0, of an example that is empty, too long or cut,
                and what happens to it; by default it is printed to standard error.
            max_tokens: tokens in a batch.

        Returns:
            a prediction for each, or None for those that are empty or too long.

        Raises:
            UsageError: the model is no classifier, or was trained on another number of texts.
        """
        logits = self.class_logits(examples, complain, max_tokens)
        return [None if row is None else prediction_of(row, self.head) for row in logits]

    @property
    def head(self) -> Head:
        """The head of a classifier."""
        return refuse_without_head(self._folder, self._folder.path)

    def class_logits(
        self,
        examples: Sequence[Example],
        complain: Complain = _on_standard_error,
        max_tokens: int = BATCH,
    ) -> List[Optional[Tensor]]:
        """The outputs (N,) of the head for each example; arguments and errors as of `predict`."""
        head = self.head
        check_texts(examples, "predict", 1, 2)
        texts: List[Tuple[str, ...]] = [(e,) if isinstance(e, str) else tuple(e) for e in examples]
        self._check_inputs(texts, head)
        encoded, places = [], []
        for place, example in enumerate(texts):
            numbers = self._accepted(example, functools.partial(complain, place))
            if numbers is not None:
                encoded.append(numbers)
                places.append(place)
        found: List[Optional[Tensor]] = [None] * len(texts)
        for batch in batches_by_tokens(list(map(len, encoded)), max_tokens):
            logits = self._logits([encoded[n] for n in batch], head)
            for number, values in zip(batch, logits):
                found[places[number]] = values
        return found

    @torch.no_grad()
    def _logits(self, texts: Sequence[Tensor], head: Head) -> Tensor:
        """The logits (B, N) of a head."""
        tokens = self._batch(texts)
        logits: Tensor = self.model(tokens, features_only=True, classification_head_name=head.name)[
            0
        ]
        return logits.float().cpu()

    def _accepted(
        self, texts: Tuple[str, ...], complain: Callable[[str], None]
    ) -> Optional[Tensor]:
        """The numbers of an example that the model reads, or None."""
        if not any(text.strip() for text in texts):
            complain("it is empty; its prediction is left empty")
            return None
        numbers = self._numbers(texts)
        if len(numbers) <= self._longest:
            return numbers
        size = f"it has {len(numbers)} tokens, and the model accepts {self._longest}"
        if self._cuts:
            complain(f"{size}; the rest is cut off, as in training")
            return numbers[: self._longest]
        complain(f"{size}; its prediction is left empty")
        return None

    @staticmethod
    def _check_inputs(texts: Sequence[Tuple[str, ...]], head: Head) -> None:
        expected = (1, 2) if head.inputs is None else (head.inputs,)
        for number, example in enumerate(texts):
            if len(example) not in expected:
                raise UsageError(
                    f"predict: example {number} of the list has {len(example)} texts, and the "
                    f"model was trained on {' or '.join(map(str, expected))}"
                )


def _example(text: str, second: Optional[str]) -> Tuple[str, ...]:
    return (text,) if second is None else (text, second)


def prediction_of(logits: Tensor, head: Head) -> Prediction:
    """The prediction that the outputs (N,) of a head stand for."""
    if head.regression:
        values = [head.value(output) for output in logits.tolist()]
        return Prediction(None, values[0], dict(zip(head.labels, values)))
    probabilities = logits.softmax(-1).tolist()
    best = int(logits.argmax())
    return Prediction(head.labels[best], probabilities[best], dict(zip(head.labels, probabilities)))
