"""The masked-LM job of benchmark.py: fairseq's RoBERTa, the plug-in's models, Hugging Face."""

import argparse
import contextlib
import shlex
from typing import Any, Dict

import torch
import torch.nn.functional as F
from benchmark_jobs import DTYPES, SIZES, Run, parse_training
from fairseq.criterions.masked_lm import MaskedLmLoss
from fairseq.data import Dictionary
from fairseq.models import build_model
from torch import Tensor

from fairseq_posenc.errors import UsageError

HUGGING_FACE = "hf-roformer"
EXPLICIT = "explicit "  # before an architecture: no fused attention
MASKED = 0.15  # share of the tokens


class _Task:
    """The little of fairseq's masked-LM task that model and criterion need."""

    def __init__(self, cfg: Any, dictionary: Dictionary) -> None:
        self.cfg = cfg
        self.source_dictionary = self.target_dictionary = dictionary

    def max_positions(self) -> int:
        return int(self.cfg.tokens_per_sample)


def explicit_attention() -> Any:
    """Where PyTorch computes attention step by step (PyTorch 2.3 and later)."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel(SDPBackend.MATH)


class MaskedLMSubject:
    """One masked language model and one batch without padding.

    Args:
        entry: architecture and flags, as in ``--archs``, after ``explicit`` or not; or
            ``hf-roformer``.
        args: what the command line gave.
    """

    def __init__(self, entry: str, args: argparse.Namespace) -> None:
        self.entry, self.args = entry, args
        self.explicit = entry.startswith(EXPLICIT)
        self.dictionary = Dictionary()
        while len(self.dictionary) < args.vocabulary:
            self.dictionary.add_symbol(f"w{len(self.dictionary)}")
        torch.manual_seed(args.seed)
        build = self._hugging_face if entry == HUGGING_FACE else self._fairseq
        self.model = build().to(args.device, DTYPES[args.dtype])
        self.sample = self._sample()

    def _fairseq(self) -> torch.nn.Module:
        channels, ffn, heads = SIZES[self.args.size]
        arch = self.entry[len(EXPLICIT) :] if self.explicit else self.entry
        flags = ["--task", "masked_lm", "--criterion", "masked_lm"]
        flags += ["--tokens-per-sample", str(self.args.length[0])]
        flags += ["--encoder-layers", str(self.args.layers), "--encoder-embed-dim", str(channels)]
        flags += ["--encoder-ffn-embed-dim", str(ffn), "--encoder-attention-heads", str(heads)]
        cfg = parse_training(*flags, "--arch", *shlex.split(arch))
        self.task = _Task(cfg.task, self.dictionary)
        return build_model(cfg.model, self.task)

    def _hugging_face(self) -> torch.nn.Module:
        try:
            from transformers import RoFormerConfig, RoFormerForMaskedLM
        except ImportError:
            raise UsageError(
                f"--archs {HUGGING_FACE}: needs transformers; pip install transformers"
            ) from None
        channels, ffn, heads = SIZES[self.args.size]
        return RoFormerForMaskedLM(
            RoFormerConfig(
                vocab_size=len(self.dictionary),
                hidden_size=channels,
                embedding_size=channels,
                num_hidden_layers=self.args.layers,
                num_attention_heads=heads,
                intermediate_size=ffn,
                max_position_embeddings=self.args.length[0],
            )
        )

    def _sample(self) -> Dict[str, Any]:
        draw = torch.Generator().manual_seed(self.args.seed)
        size = (self.args.batch, self.args.length[0])
        tokens = torch.randint(4, len(self.dictionary), size, generator=draw)
        tokens[:, 0] = self.dictionary.bos()
        masked = torch.rand(size, generator=draw) < MASKED
        target = tokens.masked_fill(~masked, self.dictionary.pad())
        tokens, target = tokens.to(self.args.device), target.to(self.args.device)
        return {
            "net_input": {"src_tokens": tokens},
            "target": target,
            "nsentences": len(tokens),
            "ntokens": tokens.numel(),
        }

    def training(self) -> Run:
        """Return what runs one training step."""
        self.model.train()
        loss = self._hugging_face_loss if self.entry == HUGGING_FACE else self._fairseq_loss()

        def step() -> None:
            self.model.zero_grad()
            with explicit_attention() if self.explicit else contextlib.nullcontext():
                loss().backward()

        return step

    def _fairseq_loss(self) -> Any:
        criterion = MaskedLmLoss(argparse.Namespace(tpu=False), self.task)
        return lambda: criterion(self.model, self.sample)[0]

    def _hugging_face_loss(self) -> Tensor:
        logits = self.model(self.sample["net_input"]["src_tokens"]).logits
        return F.cross_entropy(
            logits.flatten(0, 1),
            self.sample["target"].flatten(),
            ignore_index=self.dictionary.pad(),
            reduction="sum",
        )
