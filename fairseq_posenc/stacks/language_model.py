"""Decoder of a language model, with the output layer and segments of BERT as options.

RoFormer, Su et al., arXiv 2104.09864, was released as a language model of that shape, too.
"""

from dataclasses import dataclass
from typing import Any, Optional

from fairseq.data import Dictionary
from torch import Tensor, nn

from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.settings import setting
from fairseq_posenc.layers.heads import MaskedLMHead
from fairseq_posenc.stacks.decoder import TransformerDecoder


@dataclass
class LanguageModelFlags:
    """Flags of the language model, in addition to fairseq's."""

    lm_head: Optional[str] = setting(
        "projection",
        "projection: the output projection alone; roberta: dense, activation, norm, projection, as "
        "in masked language models",
        role="model",
        choices=("projection", "roberta"),
    )
    num_segments: Optional[int] = setting(
        0,
        "number of segment embeddings, 0 for none; every token is in the first segment",
        role="model",
        at_least=0,
        at_most=2**16,
    )


class LanguageModelDecoder(TransformerDecoder):
    """Decoder without attention to a source.

    Args:
        cfg: fairseq's nested Transformer configuration with the encodings' flags, ``lm_head``,
            ``num_segments`` and ``memory_length``.
        dictionary: the dictionary.
        embed_tokens: token embedding (V, E).
    """

    output_projection: Any

    def __init__(self, cfg: Options, dictionary: Dictionary, embed_tokens: nn.Embedding) -> None:
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn=True)
        self.memory_length = int(cfg.memory_length)
        size = embed_tokens.embedding_dim
        self.embed_segments = nn.Embedding(cfg.num_segments, size) if cfg.num_segments else None
        if self.embed_segments is not None:
            nn.init.normal_(self.embed_segments.weight, std=size**-0.5)  # tokens have the same

    def build_output_projection(
        self, cfg: Options, dictionary: Dictionary, embed_tokens: nn.Embedding
    ) -> None:
        """Build the output layer that ``--lm-head`` selects."""
        super().build_output_projection(cfg, dictionary, embed_tokens)
        if cfg.lm_head == "roberta":
            size, weight = self.output_embed_dim, self.output_projection.weight
            self.output_projection = MaskedLMHead(
                size, size, len(dictionary), cfg.activation_fn, weight
            )

    def embed(self, tokens: Tensor) -> Tensor:
        """Token embeddings (B, T, E), plus that of the first segment."""
        x = super().embed(tokens)
        return x if self.embed_segments is None else x + self.embed_segments.weight[0]
