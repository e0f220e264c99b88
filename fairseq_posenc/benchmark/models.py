"""Whole models, each with its task and a batch: translation, masked and causal language models."""

import argparse
import contextlib
import shlex
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from fairseq import options, utils
from fairseq.data import Dictionary
from fairseq.data.language_pair_dataset import collate
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.masked_lm import MaskedLMTask
from fairseq.tasks.translation import TranslationTask
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.benchmark.options import BEAM, SIZES

Run = Callable[[], Any]
EXPLICIT = "explicit"  # before an architecture: no fused attention
MASKED = 0.15  # share of tokens to predict


def numbered_words(count: int) -> Dictionary:
    """A dictionary of *count* symbols, including those of fairseq."""
    dictionary = Dictionary()
    while len(dictionary) < count:
        dictionary.add_symbol(f"w{len(dictionary)}")
    return dictionary


def parse_training(*flags: str) -> Any:
    """The configuration that fairseq-train would build from these flags."""
    args = options.parse_args_and_arch(options.get_training_parser(), ["-", *flags])
    return convert_namespace_to_omegaconf(args)


def explicit_attention() -> Any:
    """Context in which PyTorch uses no fused attention kernel (PyTorch 2.3 and later)."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel(SDPBackend.MATH)


def split_entry(entry: str) -> Tuple[bool, Optional[int], List[str]]:
    """Split an entry of ``--archs``.

    Returns:
        whether attention is explicit, the entry's own ``--vocabulary`` if given, and the rest.
    """
    words = shlex.split(entry)
    explicit = words[:1] == [EXPLICIT]
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--vocabulary", type=int)
    own, words = parser.parse_known_args(words[explicit:])
    return explicit, own.vocabulary, words


class Subject:
    """One model with its task, built from the command line as fairseq does, and one batch.

    Args:
        entry: architecture and flags, as in ``--archs``.
    """

    #: Entries of ``--all-encodings``: the model of fairseq, and the plug-in's with free flags.
    stock, generic = "", ""
    decoder_only = False

    def __init__(self, entry: str, args: argparse.Namespace) -> None:
        self.entry, self.args = entry, args
        self.explicit, vocabulary, words = split_entry(entry)
        self.vocabulary = vocabulary or args.vocabulary
        self.model = self.build(words).to(args.device, getattr(torch, args.dtype))
        self.sample = self.batch(torch.Generator().manual_seed(args.seed))

    @classmethod
    def check(cls, entry: str, jobs: List[str]) -> None:
        """Refuse an entry of ``--archs`` that is not a model, or not one for *jobs*.

        Raises:
            UsageError: naming the entry.
        """
        explicit, _, words = split_entry(entry)
        name = words[0] if words else ""
        if name not in ARCH_MODEL_REGISTRY:
            raise UsageError(
                f"--archs {entry!r}: {name!r} is not an architecture of fairseq or of the plug-in; "
                "`fairseq-posenc list` names them"
            )
        if explicit and jobs != ["masked-lm"]:
            raise UsageError(f"--archs {entry!r}: {EXPLICIT} is only for --jobs masked-lm")

    def flags(self) -> List[str]:
        """The flags of ``fairseq-train`` that all entries share."""
        raise NotImplementedError

    def make_task(self, cfg: Any) -> Any:
        """The task of fairseq, with a dictionary of the size asked for."""
        raise NotImplementedError

    def batch(self, draw: torch.Generator) -> Dict[str, Any]:
        """A batch of the task, with words drawn by *draw*."""
        raise NotImplementedError

    def with_documents(self, tokens: Tensor, end: int, draw: torch.Generator) -> Tensor:
        """*tokens* (B, T) with ends of documents of ``--documents`` tokens on average, if given."""
        mean = self.args.documents
        if mean is None:
            return tokens
        return tokens.masked_fill(torch.rand(tokens.shape, generator=draw) < 1 / mean, end)

    def build(self, words: List[str]) -> nn.Module:
        """A model from an architecture and its flags, which take precedence over the shared."""
        cfg = parse_training(*self.flags(), "--arch", *words)
        self.task = self.make_task(cfg.task)
        self.criterion = self.task.build_criterion(cfg.criterion)
        torch.manual_seed(self.args.seed)
        return self.task.build_model(cfg.model)

    def sized(self, side: str) -> List[str]:
        """The flags of ``--size`` and ``--layers`` for an encoder or a decoder."""
        channels, ffn, heads = SIZES[self.args.size]
        flags = [f"--{side}-layers", str(self.args.layers), f"--{side}-embed-dim", str(channels)]
        flags += [f"--{side}-ffn-embed-dim", str(ffn), f"--{side}-attention-heads", str(heads)]
        return flags

    def start(self, job: str) -> Run:
        """A function that runs *job* once; after generation, the model cannot be trained."""
        return self.generation() if job.endswith("generation") else self.training()

    def loss(self) -> Tensor:
        """The loss of the batch, summed."""
        return self.criterion(self.model, self.sample)[0]

    def training(self) -> Run:
        """A function that runs one training step, without the optimiser."""
        self.model.train()

        def step() -> None:
            self.model.zero_grad()
            with explicit_attention() if self.explicit else contextlib.nullcontext():
                self.loss().backward()

        return step

    def generation(self) -> Run:
        """A function that generates texts of ``--length`` tokens."""
        raise NotImplementedError

    def search(self, sample: Dict[str, Any], *flags: str) -> Run:
        """A function that continues *sample* to exactly ``--length`` tokens.

        Args:
            flags: those of ``fairseq-generate``, with ``--task``.
        """
        length = str(self.args.length[-1])
        flags += ("--path", "-", "--beam", str(BEAM), "--max-len-a", "0")
        flags += ("--max-len-b", length, "--min-len", length)
        args = options.parse_args_and_arch(options.get_generation_parser(), ["-", *flags])
        cfg = convert_namespace_to_omegaconf(args)
        model: Any = self.model
        model.zero_grad(set_to_none=True)
        model.eval()
        model.prepare_for_inference_(cfg)
        generator = self.task.build_generator([model], cfg.generation)
        return lambda: self.task.inference_step(generator, [model], sample)


class TranslationSubject(Subject):
    """A translation model; sentences are up to a quarter shorter than the longest, and padded."""

    stock, generic = "transformer", "posenc_transformer"

    def make_task(self, cfg: Any) -> TranslationTask:
        """The task, with one dictionary for both languages."""
        dictionary = numbered_words(self.vocabulary)
        return TranslationTask(cfg, dictionary, dictionary)

    def flags(self) -> List[str]:
        """Label-smoothed cross-entropy and shared embeddings."""
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

    stock, generic = "roberta_base", "posenc_masked_lm"

    def make_task(self, cfg: Any) -> MaskedLMTask:
        """The task, whose dictionary ends with the mask."""
        return MaskedLMTask(cfg, numbered_words(self.vocabulary - 1))

    def flags(self) -> List[str]:
        """Cross-entropy of the masked tokens."""
        flags = ["--task", "masked_lm", "--criterion", "masked_lm"]
        flags += ["--tokens-per-sample", str(self.args.length[0])]
        return [*flags, *self.sized("encoder")]

    def batch(self, draw: torch.Generator) -> Dict[str, Any]:
        """Random tokens; :data:`MASKED` of them are to be predicted."""
        words, size = self.task.source_dictionary, (self.args.batch, self.args.length[0])
        tokens = self.with_documents(
            torch.randint(words.nspecial, len(words), size, generator=draw), words.eos(), draw
        )
        tokens[:, 0] = words.bos()
        masked = torch.rand(size, generator=draw) < MASKED
        target = tokens.masked_fill(~masked, words.pad())
        return sample_of(tokens.to(self.args.device), target.to(self.args.device))


class LanguageModelSubject(Subject):
    """A language model in the shape of GPT-3; prompts have the first of two ``--length``."""

    stock, generic = "transformer_lm", "posenc_lm"
    decoder_only = True

    def make_task(self, cfg: Any) -> LanguageModelingTask:
        """The task."""
        return LanguageModelingTask(cfg, numbered_words(self.vocabulary))

    def flags(self) -> List[str]:
        """Cross-entropy, and the same dropout for all models, including fairseq's."""
        flags = ["--task", "language_modeling", "--criterion", "cross_entropy"]
        flags += ["--tokens-per-sample", str(self.args.length[-1] + 2), *self.sized("decoder")]
        channels = str(SIZES[self.args.size].channels)
        flags += ["--decoder-input-dim", channels, "--decoder-output-dim", channels]
        flags += ["--decoder-normalize-before", "--share-decoder-input-output-embed"]
        return [*flags, "--activation-fn", "gelu", "--dropout", "0.1"]

    def batch(self, draw: torch.Generator) -> Dict[str, Any]:
        """Random tokens after an end of sentence."""
        words, size = self.task.source_dictionary, (self.args.batch, self.args.length[-1] + 1)
        tokens = self.with_documents(
            torch.randint(words.nspecial, len(words), size, generator=draw), words.eos(), draw
        )
        tokens[:, 0] = words.eos()
        tokens = tokens.to(self.args.device)
        return sample_of(tokens[:, :-1], tokens[:, 1:].contiguous())

    def generation(self) -> Run:
        """A function that continues the first tokens of the batch."""
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
