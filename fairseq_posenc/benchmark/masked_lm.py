"""The masked-LM job: fairseq's RoBERTa, the plug-in's models, and their peers."""

import argparse
import contextlib
import shlex
from typing import Any, Dict, List, Optional, Tuple

import torch
import torch.nn.functional as F
from fairseq.criterions.masked_lm import MaskedLmLoss
from fairseq.data import Dictionary
from fairseq.models import build_model
from torch import Tensor

from fairseq_posenc.benchmark.options import SIZES
from fairseq_posenc.benchmark.peers import PEERS
from fairseq_posenc.benchmark.translation import Run, parse_training
from fairseq_posenc.flags.options import Options

EXPLICIT = "explicit"  # before an architecture: no fused attention
MASKED = 0.15  # share of tokens to predict


class _Task:
    """The part of fairseq's masked-LM task that model and criterion use."""

    def __init__(self, cfg: Options, dictionary: Dictionary) -> None:
        self.cfg = cfg
        self.source_dictionary = self.target_dictionary = dictionary

    def max_positions(self) -> int:
        return int(self.cfg.tokens_per_sample)


def explicit_attention() -> Any:
    """Context in which PyTorch uses no fused attention kernel (PyTorch 2.3 and later)."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel(SDPBackend.MATH)


def split_entry(entry: str) -> Tuple[bool, Optional[int], List[str]]:
    """Split an entry of ``--archs``.

    Args:
        entry: as in ``--archs``.

    Returns:
        whether it asks for explicit attention, its ``--vocabulary`` if it has one, and the rest.
    """
    words = shlex.split(entry)
    explicit = words[:1] == [EXPLICIT]
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--vocabulary", type=int)
    own, words = parser.parse_known_args(words[explicit:])
    return explicit, own.vocabulary, words


class MaskedLMSubject:
    """One masked language model and one batch without padding.

    Args:
        entry: architecture and flags, as in ``--archs``, optionally preceded by ``explicit``; or
            one of :data:`PEERS`; optionally with ``--vocabulary``.
        args: the command line.
    """

    stock, generic = "roberta_base", "posenc_masked_lm"
    decoder_only = False

    def __init__(self, entry: str, args: argparse.Namespace) -> None:
        self.entry, self.args = entry, args
        self.explicit, vocabulary, words = split_entry(entry)
        self.dictionary = Dictionary()
        while len(self.dictionary) < (vocabulary or args.vocabulary):
            self.dictionary.add_symbol(f"w{len(self.dictionary)}")
        torch.manual_seed(args.seed)
        self.peer = words[0] in PEERS
        if self.peer:
            model = PEERS[words[0]](args, self.dictionary, self._fairseq)
        else:
            model = self._fairseq(words)
        self.model = model.to(args.device, getattr(torch, args.dtype))
        self.sample = self._sample()

    def _fairseq(self, words: List[str]) -> torch.nn.Module:
        channels, ffn, heads = SIZES[self.args.size]
        flags = ["--task", "masked_lm", "--criterion", "masked_lm"]
        flags += ["--tokens-per-sample", str(self.args.length[0])]
        flags += ["--encoder-layers", str(self.args.layers), "--encoder-embed-dim", str(channels)]
        flags += ["--encoder-ffn-embed-dim", str(ffn), "--encoder-attention-heads", str(heads)]
        cfg = parse_training(*flags, "--arch", *words)
        self.task = _Task(cfg.task, self.dictionary)
        return build_model(cfg.model, self.task)

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

    def start(self, job: str) -> Run:
        """Return a function that runs *job*, always a training step, once."""
        return self.training()

    def training(self) -> Run:
        """Return a function that runs one training step."""
        self.model.train()
        loss = self._peer_loss if self.peer else self._fairseq_loss()

        def step() -> None:
            self.model.zero_grad()
            with explicit_attention() if self.explicit else contextlib.nullcontext():
                loss().backward()

        return step

    def _fairseq_loss(self) -> Any:
        criterion = MaskedLmLoss(argparse.Namespace(tpu=False), self.task)
        return lambda: criterion(self.model, self.sample)[0]

    def _peer_loss(self) -> Tensor:
        logits = self.model(self.sample["net_input"]["src_tokens"]).logits
        return F.cross_entropy(
            logits.flatten(0, 1),
            self.sample["target"].flatten(),
            ignore_index=self.dictionary.pad(),
            reduction="sum",
        )
