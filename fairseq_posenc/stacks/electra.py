"""Generator and discriminator of replaced-token detection.

ELECTRA, Clark et al. 2020, arXiv 2003.10555.
"""

import copy

import torch
from fairseq.data import Dictionary
from fairseq.utils import get_activation_fn
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.flags.options import Options
from fairseq_posenc.stacks.masked_lm import MaskedLMEncoder


def generator_settings(cfg: Options) -> Options:
    """The settings of the generator: the discriminator's, in narrower layers (section 3.2).

    Args:
        cfg: flat configuration with ``generator_size``, complete.

    Raises:
        UsageError: the fraction leaves no whole number of channels.
    """
    small, size = copy.deepcopy(cfg), cfg.generator_size
    small.encoder_attention_heads = max(1, round(cfg.encoder_attention_heads * size))
    small.encoder_embed_dim = round(cfg.encoder_embed_dim * size)
    small.encoder_ffn_embed_dim = max(1, round(cfg.encoder_ffn_embed_dim * size))
    small.lm_head = "roberta"
    channels, heads = small.encoder_embed_dim, small.encoder_attention_heads
    if channels < 1 or channels % heads:
        raise UsageError(
            f"--generator-size {size}: gives {heads} heads and {channels} channels, of "
            f"--encoder-embed-dim {cfg.encoder_embed_dim}, which is no multiple; give another "
            "fraction, such as 0.25"
        )
    return small


class Generator(MaskedLMEncoder):
    """A small masked language model with the discriminator's token embedding.

    Args:
        cfg: flat configuration of the discriminator, complete.
        dictionary: the dictionary.
        embed_tokens: token embedding of the discriminator (V, E).
    """

    def __init__(self, cfg: Options, dictionary: Dictionary, embed_tokens: nn.Module) -> None:
        self.__dict__["shared"] = embed_tokens  # nn.Module is not initialised yet
        super().__init__(generator_settings(cfg), dictionary)

    def build_embedding(self, vocab_size: int, embedding_dim: int, padding_idx: int) -> nn.Module:
        """The shared token embedding (V, E)."""
        return self.__dict__["shared"]


class ReplacedHead(nn.Module):
    """Logit of a token having been replaced: dense, activation, projection (Eq. 2).

    Args:
        embed_dim: C.
        activation_fn: name of the activation.
    """

    def __init__(self, embed_dim: int, activation_fn: str) -> None:
        super().__init__()
        self.dense = nn.Linear(embed_dim, embed_dim)
        self.activation = get_activation_fn(activation_fn)
        self.out_proj = nn.Linear(embed_dim, 1)

    def forward(self, features: Tensor) -> Tensor:
        """Logits (B, T) of features (B, T, C)."""
        return self.out_proj(self.activation(self.dense(features))).squeeze(-1)


def sample_tokens(logits: Tensor, repeatable: bool) -> Tensor:
    """Draw a token from each distribution softmax(logits), without gradient (section 2).

    Args:
        logits: (N, V).
        repeatable: draw the same at every call, as validation should.

    Returns:
        (N,), int64.
    """
    source = None
    if repeatable:
        source = torch.Generator(device=logits.device)
        source.manual_seed(0)
    logits = logits.detach().float()
    # the smallest of exponential variables with rates p is that of token i with probability p_i
    return (logits - torch.empty_like(logits).exponential_(generator=source).log()).argmax(dim=-1)
