"""The encoder of a masked language model that runs each document of a packed sample alone."""

from typing import Any, Dict, List, Optional

from fairseq.data import Dictionary
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.replacements import register_replacement
from fairseq_posenc.models.roberta import SentenceEncoder
from fairseq_posenc.packs.packed_documents.documents import DocumentSplitter
from fairseq_posenc.packs.packed_documents.flags import FLAG, NAME, READS
from fairseq_posenc.stacks.encoder import Encoded, Requested


@register_replacement(
    NAME,
    of=SentenceEncoder,
    reads=READS,
    no_matrix="a block has a matrix for each of its documents, of several sizes; give a model that "
    "was trained without the flag",
)
class DocumentEncoder(SentenceEncoder):
    """Encoder that computes each document of a sample alone.

    It divides the original tokens: masks can hide separators, and random tokens can be separators.

    Args:
        cfg: fairseq's nested Transformer configuration.
        embed_tokens: token embedding (V, E).
    """

    reads_original = True

    def __init__(self, cfg: Options, dictionary: Dictionary, embed_tokens: nn.Embedding) -> None:
        super().__init__(cfg, dictionary, embed_tokens)
        self.documents = DocumentSplitter(cfg, self, dictionary)

    def features(
        self,
        src_tokens: Tensor,
        requested: Requested,
        segment_labels: Optional[Tensor] = None,
        original: Optional[Tensor] = None,
        **unused: Any,
    ) -> Encoded:
        """Features of a batch of samples, as in the base class."""
        packed = self.documents.packed(src_tokens, self.training, original)
        if packed is None:
            return super().features(src_tokens, requested, segment_labels)
        embedded, parts = self.embed(src_tokens, segment_labels), []
        for group in packed.groups:
            inputs = (packed.texts(group), group.rows(embedded), group.padding(causal=False))
            batch, _ = self.begin(*inputs)
            parts.append(self.run_layers(batch, requested))
        states = [packed.join(each) for each in zip(*(part.states for part in parts))]
        return Encoded(packed.join([part.x for part in parts]), states, [])

    def forward(self, *args: Any, **kwargs: Any) -> Dict[str, List[Tensor]]:
        """Refuse a call of the stack by itself.

        Raises:
            UsageError: always; :meth:`features` keeps documents apart.
        """
        raise UsageError(
            f"{FLAG}: the stack alone does not keep documents apart; call the model, or "
            "extract_features of its encoder"
        )
