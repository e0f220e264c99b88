"""The translation jobs: a training step and beam search."""

import argparse
import shlex
from typing import Any, Callable, Dict, List

import torch
from fairseq import options, utils
from fairseq.data import Dictionary
from fairseq.data.language_pair_dataset import collate
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks.translation import TranslationTask

from fairseq_posenc.benchmark.options import BEAM, SIZES

Run = Callable[[], Any]


def parse_training(*flags: str) -> Any:
    """The configuration that fairseq-train would build from these flags."""
    args = options.parse_args_and_arch(options.get_training_parser(), ["-", *flags])
    return convert_namespace_to_omegaconf(args)


def search(subject: Any, sample: Dict[str, Any], length: int, *flags: str) -> Run:
    """A function that searches *sample* for texts of *length* tokens.

    The model is prepared for inference and cannot be trained afterwards.

    Args:
        subject: has the ``model`` and its ``task``.
        sample: a batch of the task.
        length: tokens of every hypothesis.
        flags: further flags of fairseq-generate, ``--task`` among them.
    """
    flags += ("--path", "-", "--beam", str(BEAM), "--max-len-a", "0")
    flags += ("--max-len-b", str(length), "--min-len", str(length))
    args = options.parse_args_and_arch(options.get_generation_parser(), ["-", *flags])
    cfg = convert_namespace_to_omegaconf(args)
    model, task = subject.model, subject.task
    model.zero_grad(set_to_none=True)
    model.eval()
    model.prepare_for_inference_(cfg)
    generator = task.build_generator([model], cfg.generation)
    return lambda: task.inference_step(generator, [model], sample)


class TranslationSubject:
    """One architecture with its task, built from the command line as fairseq does.

    Args:
        entry: architecture and flags, as in ``--archs``.
        args: the command line.
    """

    stock, generic = "transformer", "posenc_transformer"
    decoder_only = False

    def __init__(self, entry: str, args: argparse.Namespace) -> None:
        self.entry, self.args = entry, args
        self.cfg = parse_training("--task", "translation", *self._training_flags())
        vocabulary = Dictionary()
        while len(vocabulary) < args.vocabulary:
            vocabulary.add_symbol(f"w{len(vocabulary)}")
        self.task = TranslationTask(self.cfg.task, vocabulary, vocabulary)
        torch.manual_seed(args.seed)
        self.model = self.task.build_model(self.cfg.model).to(
            args.device, getattr(torch, args.dtype)
        )
        self.sample = self._sample(vocabulary)

    def _training_flags(self) -> List[str]:
        channels, ffn, heads = SIZES[self.args.size]
        flags = ["--share-all-embeddings", "--label-smoothing", "0.1"]
        flags += ["--criterion", "label_smoothed_cross_entropy"]
        for side, length in (("encoder", "source"), ("decoder", "target")):
            flags += [f"--{side}-layers", str(self.args.layers)]
            flags += [f"--{side}-embed-dim", str(channels), f"--{side}-ffn-embed-dim", str(ffn)]
            flags += [f"--{side}-attention-heads", str(heads)]
            flags += [f"--max-{length}-positions", str(max(1024, *self.args.length) + 2)]
        return [
            *flags,
            "--arch",
            *shlex.split(self.entry),
        ]  # last, so that the flags of the entry take precedence

    def _sample(self, vocabulary: Dictionary) -> Dict[str, Any]:
        """One batch of random sentences, padded as fairseq pads them."""
        draw = torch.Generator().manual_seed(self.args.seed)
        samples = []
        for i in range(self.args.batch):
            pair = {}
            for side, longest in zip(("source", "target"), self.args.length * 2):
                length = longest - longest * i // (4 * self.args.batch)
                words = (max(1, length - 1),)
                tokens = torch.randint(vocabulary.nspecial, len(vocabulary), words, generator=draw)
                pair[side] = torch.cat([tokens, torch.tensor([vocabulary.eos()])])
            samples.append(dict(pair, id=i))
        sample = collate(samples, vocabulary.pad(), vocabulary.eos(), left_pad_source=True)
        on_gpu = torch.device(self.args.device).type == "cuda"
        return utils.move_to_cuda(sample, torch.device(self.args.device)) if on_gpu else sample

    def start(self, job: str) -> Run:
        """Return a function that runs *job* once."""
        return self.generation() if job == "generation" else self.training()

    def training(self) -> Run:
        """Return a function that runs one training step."""
        self.model.train()
        criterion = self.task.build_criterion(self.cfg.criterion)

        def step() -> None:
            self.model.zero_grad()
            criterion(self.model, self.sample)[0].backward()

        return step

    def generation(self) -> Run:
        """Return a function that translates the batch; the model cannot be trained afterwards."""
        flags = ("--task", "translation", "--lenpen", "0.6")
        return search(self, self.sample, self.args.length[-1], *flags)
