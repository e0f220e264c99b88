"""The language-model jobs: a training step, and the continuation of prompts."""

import argparse
import shlex
from typing import Any, Dict

import torch
from fairseq.data import Dictionary
from fairseq.tasks.language_modeling import LanguageModelingTask
from torch import Tensor

from fairseq_posenc.benchmark.options import SIZES
from fairseq_posenc.benchmark.translation import Run, parse_training, search


class LanguageModelSubject:
    """One language model and one batch without padding.

    Args:
        entry: architecture and flags, as in ``--archs``.
        args: the command line; its lengths are those of the prompt and of the whole text.
    """

    stock, generic = "transformer_lm", "posenc_lm"
    decoder_only = True

    def __init__(self, entry: str, args: argparse.Namespace) -> None:
        self.entry, self.args = entry, args
        self.length = args.length[-1]
        self.prompt = args.length[0] if len(args.length) > 1 else self.length // 2
        dictionary = Dictionary()
        while len(dictionary) < args.vocabulary:
            dictionary.add_symbol(f"w{len(dictionary)}")
        self.cfg = self._configuration()
        self.task = LanguageModelingTask(self.cfg.task, dictionary)
        torch.manual_seed(args.seed)
        self.model = self.task.build_model(self.cfg.model).to(
            args.device, getattr(torch, args.dtype)
        )
        draw = torch.Generator().manual_seed(args.seed)
        size = (args.batch, self.length + 1)
        tokens = torch.randint(dictionary.nspecial, args.vocabulary, size, generator=draw)
        tokens[:, 0] = dictionary.eos()
        self.tokens = tokens.to(args.device)

    def _configuration(self) -> Any:
        """The shape of GPT-3 and the same dropout for all models, including fairseq's."""
        channels, ffn, heads = SIZES[self.args.size]
        flags = ["--task", "language_modeling", "--criterion", "cross_entropy"]
        flags += ["--tokens-per-sample", str(self.length + 2)]
        flags += [
            "--decoder-layers",
            str(self.args.layers),
            "--decoder-attention-heads",
            str(heads),
        ]
        flags += ["--decoder-ffn-embed-dim", str(ffn), "--decoder-normalize-before"]
        for name in ("embed", "input", "output"):
            flags += [f"--decoder-{name}-dim", str(channels)]
        flags += ["--share-decoder-input-output-embed", "--activation-fn", "gelu"]
        flags += ["--dropout", "0.1"]
        return parse_training(
            *flags, "--arch", *shlex.split(self.entry)
        )  # last, so that the flags of the entry take precedence

    def _sample(self, tokens: Tensor) -> Dict[str, Any]:
        lengths = torch.full((len(tokens),), tokens.size(1), device=tokens.device)
        return {
            "net_input": {"src_tokens": tokens, "src_lengths": lengths},
            "target": self.tokens[:, 1:].contiguous(),
            "ntokens": tokens.numel(),
            "nsentences": len(tokens),
        }

    def start(self, job: str) -> Run:
        """Return a function that runs *job* once."""
        return self.generation() if job == "lm-generation" else self.training()

    def training(self) -> Run:
        """Return a function that runs one training step."""
        self.model.train()
        criterion = self.task.build_criterion(self.cfg.criterion)
        sample = self._sample(self.tokens[:, :-1])

        def step() -> None:
            self.model.zero_grad()
            criterion(self.model, sample)[0].backward()

        return step

    def generation(self) -> Run:
        """Return a function that continues the prompts; the model cannot be trained afterwards."""
        sample = self._sample(self.tokens[:, : self.prompt + 1])
        return search(self, sample, self.length, "--task", "language_modeling")
