"""Whole models with a task and a batch: translation, masked and causal language models."""

import argparse
import contextlib
import functools
import shlex
from typing import Any, Callable, ContextManager, Dict, List, Optional
from unittest import mock

import torch
from fairseq import options, utils
from fairseq.data import Dictionary
from fairseq.data.language_pair_dataset import collate
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.masked_lm import MaskedLMTask
from fairseq.tasks.translation import TranslationTask
from torch import Tensor, nn

from fairseq_posenc.attention.base import JoinedParameters
from fairseq_posenc.models import translation

Run = Callable[[], Any]
BEAM = 4
MASKED = 0.15  # share of tokens to predict


#: Channels, feed-forward channels and heads, keyed by the value of --size.
SIZES = {
    "tiny": (128, 512, 4),
    "base": (512, 2048, 8),
    "bert-base": (768, 3072, 12),
    "big": (1024, 4096, 16),
}


def explicit_attention() -> ContextManager[None]:
    """Context in which PyTorch (2.3 and later) uses no fused attention kernel."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel(SDPBackend.MATH)


#: Words that may precede an architecture, each with a context in which the model runs.
SWITCHES: Dict[str, Callable[[], ContextManager[Any]]] = {
    "explicit": explicit_attention,
    "no-joint": functools.partial(
        mock.patch.object, JoinedParameters, "current", lambda self, parts: {}
    ),
    # read the keys and values of a source once for each hypothesis
    "no-sharing": functools.partial(
        mock.patch.object, translation, "BEAM", "beam that nobody reads"
    ),
}


def numbered_words(count: int) -> Dictionary:
    """A dictionary of *count* symbols, including fairseq's special symbols."""
    dictionary = Dictionary()
    while len(dictionary) < count:
        dictionary.add_symbol(f"w{len(dictionary)}")
    return dictionary


class Subject:
    """A model with its task, built from a command line as fairseq does, and one batch.

    Args:
        entry: a value of ``--archs``: words of :data:`SWITCHES`, an architecture, and its flags.
        job: a value of ``--jobs``.
        args: the flags of the command line.
    """

    by_length = False  # True: a table per --length; False: --length has source and target length
    flags: Callable[[], List[str]]  # flags of fairseq-train for all entries
    make_task: Callable[[Any], Any]  # makes a task from its configuration
    batch: Callable[[torch.Generator], Dict[str, Any]]  # draws a batch by a generator
    generation: Callable[[], Run]  # makes a function that generates texts of --length tokens

    def __init__(self, entry: str, job: str, args: argparse.Namespace) -> None:
        self.entry, self.job, self.args = entry, job, args
        words = shlex.split(entry)
        self.switches = []
        while words and words[0] in SWITCHES:
            self.switches.append(SWITCHES[words.pop(0)])
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--vocabulary", type=int, default=args.vocabulary)
        own, words = parser.parse_known_args(words)
        self.vocabulary = own.vocabulary
        self.model: Any = self.build(words).to(args.device, getattr(torch, args.dtype))
        self.sample = self.batch(torch.Generator().manual_seed(args.seed))

    def build(self, words: List[str]) -> nn.Module:
        """A model from an architecture and its flags, which override the flags of all entries."""
        flags = ["-", *self.flags(), "--arch", *words]
        args = options.parse_args_and_arch(options.get_training_parser(), flags)
        cfg = convert_namespace_to_omegaconf(args)
        self.task = self.make_task(cfg.task)
        self.criterion = self.task.build_criterion(cfg.criterion)
        torch.manual_seed(self.args.seed)
        return self.task.build_model(cfg.model)

    def sized(self, side: str) -> List[str]:
        """The flags of ``--size`` and ``--layers`` for an encoder or a decoder."""
        channels, ffn, heads = SIZES[self.args.size]
        flags = [f"--{side}-layers", str(self.args.layers), f"--{side}-embed-dim", str(channels)]
        return [
            *flags,
            f"--{side}-ffn-embed-dim",
            str(ffn),
            f"--{side}-attention-heads",
            str(heads),
        ]

    @functools.cached_property
    def run(self) -> Run:
        """A function that does the job once; after generation, the model cannot be trained."""
        step = self.generation() if self.job.endswith("generation") else self.training()

        def switched() -> Any:
            with contextlib.ExitStack() as stack:
                for switch in self.switches:
                    stack.enter_context(switch())
                return step()

        return switched if self.switches else step

    def loss(self) -> Tensor:
        """The loss of the batch, summed."""
        return self.criterion(self.model, self.sample)[0]

    def training(self) -> Run:
        """A function that runs one training step, without the optimiser."""
        self.model.train()

        def step() -> None:
            self.model.zero_grad()
            self.loss().backward()

        return step

    def search(self, sample: Dict[str, Any], *flags: str) -> Run:
        """A function that continues *sample* to exactly ``--length`` tokens.

        Args:
            flags: flags of ``fairseq-generate``, including ``--task``.
        """
        length = str(self.args.length[-1])
        flags += ("--path", "-", "--beam", str(BEAM), "--max-len-a", "0")
        flags += ("--max-len-b", length, "--min-len", length)
        args = options.parse_args_and_arch(options.get_generation_parser(), ["-", *flags])
        cfg = convert_namespace_to_omegaconf(args)
        self.model.zero_grad(set_to_none=True)
        self.model.eval()
        self.model.prepare_for_inference_(cfg)
        generator = self.task.build_generator([self.model], cfg.generation)
        return lambda: self.task.inference_step(generator, [self.model], sample)


class TranslationSubject(Subject):
    """A translation model; sentences are padded, and up to a quarter shorter than the longest."""

    def make_task(self, cfg: Any) -> TranslationTask:
        """The translation task, with one dictionary for both languages."""
        dictionary = numbered_words(self.vocabulary)
        return TranslationTask(cfg, dictionary, dictionary)

    def flags(self) -> List[str]:
        """The flags for label-smoothed cross-entropy and shared embeddings."""
        flags = ["--task", "translation", "--criterion", "label_smoothed_cross_entropy"]
        flags += ["--label-smoothing", "0.1", "--share-all-embeddings"]
        longest = str(max(1024, *self.args.length) + 2)
        flags += ["--max-source-positions", longest, "--max-target-positions", longest]
        return [*flags, *self.sized("encoder"), *self.sized("decoder")]

    def batch(self, draw: torch.Generator) -> Dict[str, Any]:
        """Random sentences, padded as fairseq pads them."""
        words, samples = self.task.source_dictionary, []
        for i in range(self.args.batch):
            pair = {}
            for side, longest in zip(("source", "target"), self.args.length * 2):
                length = longest - longest * i // (4 * self.args.batch)
                size = (max(1, length - 1),)
                tokens = torch.randint(words.nspecial, len(words), size, generator=draw)
                pair[side] = torch.cat([tokens, torch.tensor([words.eos()])])
            samples.append(dict(pair, id=i))
        sample = collate(samples, words.pad(), words.eos(), left_pad_source=True)
        device = torch.device(self.args.device)
        return utils.move_to_cuda(sample, device) if device.type == "cuda" else sample

    def generation(self) -> Run:
        """A function that translates the batch."""
        return self.search(self.sample, "--task", "translation", "--lenpen", "0.6")


class MaskedLMSubject(Subject):
    """A masked language model; all sentences have ``--length`` tokens."""

    by_length = True

    def make_task(self, cfg: Any) -> MaskedLMTask:
        """The masked-LM task; its dictionary ends with the mask."""
        return MaskedLMTask(cfg, numbered_words(self.vocabulary - 1))

    def flags(self) -> List[str]:
        """The flags for cross-entropy on masked tokens."""
        flags = ["--task", "masked_lm", "--criterion", "masked_lm"]
        return [*flags, "--tokens-per-sample", str(self.args.length[0]), *self.sized("encoder")]

    def batch(self, draw: torch.Generator) -> Dict[str, Any]:
        """Random tokens; :data:`MASKED` of them are to be predicted."""
        words, size = self.task.source_dictionary, (self.args.batch, self.args.length[0])
        tokens = torch.randint(words.nspecial, len(words), size, generator=draw)
        tokens[:, 0] = words.bos()
        masked = torch.rand(size, generator=draw) < MASKED
        target = tokens.masked_fill(~masked, words.pad())
        return sample_of(tokens.to(self.args.device), target.to(self.args.device))


class LanguageModelSubject(Subject):
    """A language model in GPT-3's shape; the first of two ``--length`` is the prompts' length."""

    def make_task(self, cfg: Any) -> LanguageModelingTask:
        """The language-modeling task."""
        return LanguageModelingTask(cfg, numbered_words(self.vocabulary))

    def flags(self) -> List[str]:
        """The flags for cross-entropy, with equal dropout for all models, also fairseq's."""
        flags = ["--task", "language_modeling", "--criterion", "cross_entropy"]
        flags += ["--tokens-per-sample", str(self.args.length[-1] + 2), *self.sized("decoder")]
        channels = str(SIZES[self.args.size][0])
        flags += ["--decoder-input-dim", channels, "--decoder-output-dim", channels]
        flags += ["--decoder-normalize-before", "--share-decoder-input-output-embed"]
        return [*flags, "--activation-fn", "gelu", "--dropout", "0.1"]

    def batch(self, draw: torch.Generator) -> Dict[str, Any]:
        """Random tokens after ``</s>``."""
        words, size = self.task.source_dictionary, (self.args.batch, self.args.length[-1] + 1)
        tokens = torch.randint(words.nspecial, len(words), size, generator=draw)
        tokens[:, 0] = words.eos()
        tokens = tokens.to(self.args.device)
        return sample_of(tokens[:, :-1], tokens[:, 1:].contiguous())

    def generation(self) -> Run:
        """A function that continues the first tokens of each text in the batch."""
        first, *rest = self.args.length
        tokens = self.sample["net_input"]["src_tokens"][:, : (first if rest else first // 2) + 1]
        return self.search(sample_of(tokens, None), "--task", "language_modeling")


def sample_of(tokens: Tensor, target: Optional[Tensor]) -> Dict[str, Any]:
    """A batch of *tokens* (B, T) without padding."""
    lengths = torch.full((len(tokens),), tokens.size(1), device=tokens.device)
    return {
        "net_input": {"src_tokens": tokens, "src_lengths": lengths},
        "target": target,
        "ntokens": tokens.numel(),
        "nsentences": len(tokens),
    }
