"""Language models of model folders, from Python."""

import contextlib
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch
from fairseq.search import Sampling
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.serving.inputs import (
    FolderModel,
    check_texts,
    numbers_of,
    refuse_below_one,
    refuse_too_long,
    tokens_of,
)
from fairseq_posenc.serving.model_folder import ModelFolder
from fairseq_posenc.serving.scores import (
    Continuation,
    Scores,
    continuations_of,
    first_new,
    scores_of,
)


class NextToken(NamedTuple):
    """A symbol that can follow.

    Args:
        token: the symbol.
        probability: the probability of the symbol.
    """

    token: str
    probability: float


class LanguageModel(FolderModel):
    """A language model of a model folder; arguments as for :class:`FolderModel`."""

    def __init__(self, folder: ModelFolder, device: str = "cpu") -> None:
        super().__init__(folder, device)
        self._longest: int = self.model.max_positions()

    def tokens(self, text: str) -> List[str]:
        """The symbols that the model reads, with the one that a text starts with."""
        return tokens_of(self._dictionary, self._inputs(text, "tokens")["src_tokens"][0])

    def sample(
        self,
        prompt: str = "",
        count: int = 1,
        max_tokens: int = 100,
        temperature: float = 1.0,
        top_k: Optional[int] = None,
        top_p: Optional[float] = None,
        seed: Optional[int] = None,
    ) -> List[str]:
        """Texts that begin with a prompt, drawn token by token by fairseq's generator.

        Args:
            prompt: raw text.
            count: number of texts.
            max_tokens: largest number of tokens after the prompt; the model may accept fewer.
            temperature: divisor of the logits.
            top_k: draw from that many of the most probable tokens.
            top_p: draw from the most probable tokens that have that probability together.
            seed: gives the same texts again; by default PyTorch's random numbers go on.

        Returns:
            the prompt and its continuation, *count* times.

        Raises:
            UsageError: the prompt is too long, or a number is out of range.
        """
        refuse_below_one("sample", count=count, max_tokens=max_tokens, top_k=top_k)
        _check_sampling(temperature, top_k, top_p)
        inputs = self._inputs(prompt, "sample")
        begun = inputs["src_tokens"].size(1) - 1
        generator = SequenceGenerator(
            [self.model],
            self._dictionary,
            beam_size=count,
            max_len_b=begun + max_tokens,
            temperature=temperature,
            search_strategy=_AfterPrompt(self._dictionary, top_k or -1, top_p or -1.0),
        )
        sample = {"net_input": self._loaded.move(inputs)}
        with _seeded(seed, self._loaded.device):
            (found,) = self.task.inference_step(generator, [self.model], sample)
        end = self._dictionary.eos()
        drawn = [each["tokens"][each["tokens"].ne(end)] for each in found]
        return [self._text.text(tokens_of(self._dictionary, tokens)) for tokens in drawn]

    @torch.no_grad()
    def next_tokens(self, prompt: str, top_k: int = 5) -> List[NextToken]:
        """The most probable symbols after a prompt, best first.

        Args:
            prompt: raw text.
            top_k: number of symbols.

        Raises:
            UsageError: the prompt is too long, or *top_k* is below 1.
        """
        refuse_below_one("next_tokens", top_k=top_k)
        output = self.model(**self._loaded.move(self._inputs(prompt, "next_tokens")))
        probabilities = self.model.get_normalized_probs(output, log_probs=False)[0, -1]
        values, numbers = probabilities.topk(min(top_k, len(probabilities)))
        tokens = tokens_of(self._dictionary, numbers)
        return [NextToken(*each) for each in zip(tokens, values.tolist())]

    def score(self, texts: Sequence[str]) -> List[Scores]:
        """The log-probabilities of the tokens of texts, without the end of the text.

        Args:
            texts: raw text.

        Raises:
            UsageError: *texts* is no list, or one is longer than the model accepts.
        """
        check_texts(texts, "score")
        encoded = self._encoded(texts, "score")
        lengths = list(map(len, encoded))
        dataset = self.task.build_dataset_for_inference(encoded, lengths)
        return scores_of(self._loaded, dataset, lengths)

    def score_continuations(self, pairs: Sequence[Tuple[str, str]]) -> List[Continuation]:
        """The log-probabilities of texts that follow others, as zero-shot choices need them.

        The two are split as one text.  What is too long for the model loses its beginning.

        Args:
            pairs: raw text, and what follows it, with the space between them if there is one.

        Raises:
            UsageError: *pairs* is no list, or a continuation is empty or too long.
        """
        check_texts(pairs, "score_continuations", 2)
        wholes: List[Tensor] = []
        starts: List[int] = []
        contexts: Dict[str, Tensor] = {}
        for context, continuation in pairs:
            if context not in contexts:
                contexts[context] = self._numbers(context)[:-1]
            wholes.append(self._numbers(context + continuation))
            starts.append(first_new(contexts[context], wholes[-1][:-1]))
        return continuations_of(self._loaded, wholes, starts, self._longest)

    @torch.no_grad()
    def extract_features(self, text: str) -> Tensor:
        """The states of the last layer (T, C), for the symbols that :meth:`tokens` returns.

        Args:
            text: raw text.

        Raises:
            UsageError: the text is longer than the model accepts.
        """
        inputs = self._loaded.move(self._inputs(text, "extract_features"))
        features: Tensor = self.model(**inputs, features_only=True)[0][0]
        return features

    def _encoded(self, texts: Sequence[str], function: str) -> List[Tensor]:
        """Texts by number, with the </s> from which fairseq's data set tells them apart."""
        encoded = [self._numbers(text) for text in texts]
        refuse_too_long(encoded, self._longest, function)
        return encoded

    def _numbers(self, text: str) -> Tensor:
        return numbers_of(self._dictionary, self._text.source(text), True)

    def _inputs(self, text: str, function: str) -> Any:
        """The input of the model for one text: its start and its tokens (1, T)."""
        encoded = self._encoded([text], function)
        dataset = self.task.build_dataset_for_inference(encoded, [len(encoded[0])])
        return dataset.collater([dataset[0]])["net_input"]


class _AfterPrompt(Sampling):
    """fairseq's sampling, in which the probability of a token of the prompt is 1.

    fairseq's own sampling uses the model's probability, which is rounded to 0 where the model or a
    low temperature excludes the token; no token could be drawn then.
    """

    def step(self, step: int, lprobs: Tensor, *args: Any) -> Any:
        """See fairseq; *lprobs* (B, beam, V) of a prompt are -inf but for its token."""
        return super().step(step, lprobs.log_softmax(-1), *args)


def _check_sampling(temperature: float, top_k: Optional[int], top_p: Optional[float]) -> None:
    if not temperature > 0:
        raise UsageError(f"sample: temperature {temperature}: must be above 0")
    if top_p is not None and not 0 < top_p <= 1:
        raise UsageError(f"sample: top_p {top_p}: must be above 0 and at most 1")
    if top_k is not None and top_p is not None:
        raise UsageError(f"sample: top_k {top_k} and top_p {top_p}: give one of the two")


@contextlib.contextmanager
def _seeded(seed: Optional[int], device: str) -> Iterator[None]:
    """Random numbers from *seed*, without a change of those that come after."""
    if seed is None:
        yield
        return
    devices = [torch.device(device)] if device.startswith("cuda") else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        yield
