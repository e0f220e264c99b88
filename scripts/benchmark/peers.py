#!/usr/bin/env python3
"""Time other libraries against the plug-in, as ``fairseq-posenc benchmark`` does.

    python scripts/benchmark/peers.py --jobs masked-lm --archs roformer_masked_lm_base hf-roformer
    python scripts/benchmark/peers.py --lengths 512,1024 --archs softmax stock x-transformers

The flags are those of the command.  Its entries may also be masked language models of the same
shape: hf-roformer (pip install transformers), and gau-alpha with the weights of our GAU with two
units a layer (pip install gau-alpha 'transformers<4.47'); and with --lengths layers with the sizes,
weights and outputs of ours: stock (fairseq, no positions), x-transformers, rotary-embedding-torch,
torchscale, hf-roformer, pytorch-rotation (ours, but for the kernel that rotates), and
performer-pytorch (no positions), optionally with flags of our layer such as --favor-kernel or
--favor-features.
"""

import sys
from typing import Any, Callable, Dict, List

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attention_peers import AttentionOrPeer
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.benchmark import measure
from fairseq_posenc.benchmark.models import MaskedLMSubject, split_entry
from fairseq_posenc.benchmark.options import SIZES
from fairseq_posenc.cli import main

GATED = "gau_masked_lm_base"  # gau-alpha gets its weights


class MaskedLMOrPeer(MaskedLMSubject):
    """A masked language model of fairseq or the plug-in, or one of :data:`PEERS`."""

    peer = False

    @classmethod
    def check(cls, entry: str, jobs: List[str]) -> None:
        """Refuse what is no model, and flags of a peer.

        Raises:
            UsageError: naming the entry.
        """
        name, *flags = split_entry(entry)[2] or [""]
        if name not in PEERS:
            super().check(entry, jobs)
        elif flags:
            raise UsageError(f"--archs {entry!r}: {name} takes no flag but --vocabulary")

    def build(self, words: List[str]) -> nn.Module:
        """The model of an architecture and its flags, or of a peer."""
        if words[0] not in PEERS:
            return super().build(words)
        self.peer, self.task = True, self.make_task(None)
        torch.manual_seed(self.args.seed)
        return PEERS[words[0]](self)

    def loss(self) -> Tensor:
        """The loss of the batch, summed."""
        if not self.peer:
            return super().loss()
        logits = self.model(self.sample["net_input"]["src_tokens"]).logits.flatten(0, 1)
        ignored, target = self.task.source_dictionary.pad(), self.sample["target"].flatten()
        return F.cross_entropy(logits, target, ignore_index=ignored, reduction="sum")


def hf_roformer(subject: MaskedLMOrPeer) -> nn.Module:
    """Hugging Face's RoFormer with ``--layers`` layers."""
    package = import_extra("transformers", "--archs hf-roformer")
    channels, ffn, heads = SIZES[subject.args.size]
    return package.RoFormerForMaskedLM(
        package.RoFormerConfig(
            vocab_size=len(subject.task.source_dictionary),
            hidden_size=channels,
            embedding_size=channels,
            num_hidden_layers=subject.args.layers,
            num_attention_heads=heads,
            intermediate_size=ffn,
            max_position_embeddings=subject.args.length[0],
        )
    )


def gau_alpha(subject: MaskedLMOrPeer) -> nn.Module:
    """The GAU model of the package gau-alpha, with the weights of ours.

    Raises:
        UsageError: the package is missing, or the outputs of the two models differ.
    """
    install = "gau-alpha 'transformers<4.47'"
    package = import_extra("gau_alpha", "--archs gau-alpha", install)
    symbols, longest = subject.task.source_dictionary, subject.args.length[0]
    channels = SIZES[subject.args.size].channels
    theirs = package.GAUAlphaForMaskedLM(
        package.GAUAlphaConfig(
            vocab_size=len(symbols),
            hidden_size=channels,
            intermediate_size=2 * channels,
            num_hidden_layers=2 * subject.args.layers,
            max_position_embeddings=longest,
            pad_token_id=symbols.pad(),
        )
    ).eval()
    flags = ["--encoder-layers", str(2 * subject.args.layers)]
    ours: Any = MaskedLMSubject.build(subject, [GATED, *flags]).eval()
    _copy(ours.encoder.sentence_encoder, theirs)
    tokens = torch.arange(4, min(len(symbols), 4 + longest)).unsqueeze(0)
    with torch.no_grad():
        difference = (ours(tokens)[0] - theirs(tokens).logits).abs().max().item()
    if not difference < 1e-3:
        raise UsageError(
            f"--archs gau-alpha: with the same weights its logits differ from ours by "
            f"{difference:.1e}; gau-alpha 0.0.3 with transformers 4 is known to agree"
        )
    return theirs


@torch.no_grad()
def _copy(ours: Any, theirs: Any) -> None:
    model = theirs.gau_alpha
    pairs = [
        (model.embeddings.word_embeddings, ours.embed_tokens.weight),
        (model.embeddings.token_type_embeddings, ours.embed_segments.weight),
        (theirs.cls.predictions.decoder, ours.embed_tokens.weight),
    ]
    for layer, unit in zip(model.encoder.layer, ours.layers):
        pairs += [
            (layer.gau.i_dense, unit.self_attn.in_proj.weight),
            (layer.gau.o_dense, unit.self_attn.out_proj.weight),
            (layer.gau.q_scaleoffset, unit.self_attn.q_scale),
            (layer.gau.k_scaleoffset, unit.self_attn.k_scale),
        ]
    for target, source in pairs:
        target.weight.copy_(source)


PEERS: Dict[str, Callable[[MaskedLMOrPeer], nn.Module]] = {
    "hf-roformer": hf_roformer,
    "gau-alpha": gau_alpha,
}

if __name__ == "__main__":
    measure.SUBJECTS.update(masked_lm=MaskedLMOrPeer, attention=AttentionOrPeer)
    sys.exit(main(["benchmark", *sys.argv[1:]]))
