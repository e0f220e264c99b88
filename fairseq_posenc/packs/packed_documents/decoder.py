"""The decoder of a language model that runs each document of a packed sample alone."""

from typing import Any, Callable, Dict, List, Tuple

import torch
from fairseq.data import Dictionary
from torch import Tensor, nn

from fairseq_posenc.attention.cache import IncrementalState
from fairseq_posenc.flags.options import Options
from fairseq_posenc.flags.replacements import register_replacement
from fairseq_posenc.models.language_model import LanguageModelDecoder
from fairseq_posenc.packs.packed_documents.documents import DocumentSplitter, Packed
from fairseq_posenc.packs.packed_documents.flags import NAME, READS
from fairseq_posenc.stacks.decoder import EncoderOut

#: Key, in the incremental state, of two numbers of tokens: left out of the cache, and seen.
_COLUMNS = "documents"
Output = Tuple[Tensor, Dict[str, Any]]


@register_replacement(NAME, of=LanguageModelDecoder, reads=READS)
class DocumentDecoder(LanguageModelDecoder):
    """Decoder that computes each document of a sample alone.

    The cache has only the last document of each sample, padded on the left.

    Args:
        cfg: fairseq's nested Transformer configuration.
        embed_tokens: token embedding (V, E).
    """

    def __init__(self, cfg: Options, dictionary: Dictionary, embed_tokens: nn.Embedding) -> None:
        super().__init__(cfg, dictionary, embed_tokens)
        self.documents = DocumentSplitter(cfg, self, dictionary)

    def extract_features_scriptable(
        self,
        prev_output_tokens: Tensor,
        encoder_out: EncoderOut = None,
        incremental_state: IncrementalState = None,
        full_context_alignment: bool = False,
        *further: Any,
        **named: Any,
    ) -> Output:
        """As in the base class, for each document alone.

        In training, states between the layers are not returned for samples of several documents:
        they would stay in memory twice.
        """
        whole = super().extract_features_scriptable
        arguments = (full_context_alignment, *further)

        def compute(tokens: Tensor, state: Any = None, **padding: Any) -> Output:
            return whole(tokens, encoder_out, state, *arguments, **{**named, **padding})

        if incremental_state is not None:
            return self._cached(compute, prev_output_tokens, incremental_state)
        packed = self.documents.packed(prev_output_tokens, self.training)
        if packed is None:
            return compute(prev_output_tokens)
        return self._apart(compute, packed, not full_context_alignment)

    def _apart(self, compute: Callable[..., Output], packed: Packed, causal: bool) -> Output:
        """The states of all documents, put into the samples."""
        outputs: List[Tensor] = []
        states: List[List[Tensor]] = []
        for group in packed.groups:
            x, extra = compute(packed.texts(group), padding=group.padding(causal))
            outputs.append(x)
            states.append([] if self.training else extra["inner_states"])
        # (T, B, C) -> (B, T, C), and back
        joined = [packed.join([s.transpose(0, 1) for s in each]) for each in zip(*states)]
        inner_states = [state.transpose(0, 1) for state in joined]
        return packed.join(outputs), {"attn": [None], "inner_states": inner_states}

    def _cached(
        self, compute: Callable[..., Output], tokens: Tensor, incremental_state: Any
    ) -> Output:
        """The states of the new tokens of *tokens* (B, S).

        If a document begins, the cache is rebuilt from the last document of each sample.
        """
        left_out, seen = incremental_state.get(_COLUMNS, (0, 0))
        starts, length = self.documents.of_last(tokens), tokens.size(1)
        first, latest = torch.stack((starts.min(), starts.max())).tolist()
        # new tokens may belong to documents before the last
        packed = self.documents.packed(tokens, False) if latest > seen else None
        if seen == 0 or latest >= seen:
            incremental_state.clear()
            left_out = first if packed is not None else min(first, seen)
        incremental_state[_COLUMNS] = (left_out, length)
        column = torch.arange(length, device=tokens.device)
        shown = tokens.masked_fill(column < starts, self.padding_idx)[:, left_out:]
        x, extra = compute(shown, incremental_state)
        if packed is not None:
            x, extra = self._apart(compute, packed, True)
        new = length - seen
        states = [state[-new:] for state in extra["inner_states"]]
        return x[:, -new:], {**extra, "inner_states": states}
