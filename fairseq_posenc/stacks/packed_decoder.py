"""A decoder that computes each document of a sample as if it were alone: ``--document-mask``."""

from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from fairseq.data import Dictionary
from torch import Tensor, nn

from fairseq_posenc.attention import Padding
from fairseq_posenc.attention.cache import IncrementalState
from fairseq_posenc.attention.memory import Memory
from fairseq_posenc.configuration.stacks import stack_of
from fairseq_posenc.flags.options import Options
from fairseq_posenc.stacks.decoder import EncoderOut, TransformerDecoder
from fairseq_posenc.stacks.documents import Documents, Packed

#: Key, in the incremental state, of the numbers of tokens that are left out of the cache, and seen.
_COLUMNS = "documents"
Output = Tuple[Tensor, Dict[str, Any]]


class PackedDecoder(TransformerDecoder):
    """Decoder without attention to a source that takes samples of several documents apart.

    In the cache, a sample has the tokens of its last document alone, padded on the left.

    Args:
        cfg: fairseq's nested Transformer configuration, with ``document_mask``.
    """

    def __init__(self, cfg: Options, dictionary: Dictionary, embed_tokens: nn.Embedding) -> None:
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn=True)
        self.documents: Optional[Documents] = None
        if cfg.document_mask:
            self.documents = Documents(cfg, stack_of(cfg, "decoder"), dictionary)

    def extract_features_scriptable(
        self,
        prev_output_tokens: Tensor,
        encoder_out: EncoderOut,
        incremental_state: IncrementalState = None,
        full_context_alignment: bool = False,
        alignment_layer: Optional[int] = None,
        alignment_heads: Optional[int] = None,
        padding: Optional[Padding] = None,
        memory: Optional[Memory] = None,
    ) -> Output:
        """As in the base class, for each document alone.

        In training, states between the layers are not returned for samples of several documents:
        they would stay in memory twice.
        """
        whole = super().extract_features_scriptable
        further = (full_context_alignment, alignment_layer, alignment_heads)

        def compute(tokens: Tensor, padding: Optional[Padding], state: Any = None) -> Output:
            return whole(tokens, encoder_out, state, *further, padding, memory)

        if self.documents is None:
            return compute(prev_output_tokens, padding, incremental_state)
        if incremental_state is not None:
            return self._cached(compute, prev_output_tokens, incremental_state)
        packed = self.documents.packed(prev_output_tokens, self.training)
        if packed is None:
            return compute(prev_output_tokens, padding)
        return self._apart(compute, packed, not full_context_alignment)

    def _apart(self, compute: Callable[..., Output], packed: Packed, causal: bool) -> Output:
        """States of all documents, where they are in the samples."""
        found: List[Tensor] = []
        states: List[List[Tensor]] = []
        for group in packed.groups:
            x, extra = compute(packed.texts(group), group.padding(causal))
            found.append(x)
            states.append([] if self.training else extra["inner_states"])
        # (T, B, C) -> (B, T, C), and back
        joined = [packed.join([s.transpose(0, 1) for s in each]) for each in zip(*states)]
        inner_states = [state.transpose(0, 1) for state in joined]
        return packed.join(found), {"attn": [None], "inner_states": inner_states}

    def _cached(
        self,
        compute: Callable[..., Output],
        tokens: Tensor,
        incremental_state: Any,
    ) -> Output:
        """States of the tokens (B, S) that were not seen yet.

        Where a document begins the cache is made anew, from the last document of each sample.
        """
        assert self.documents is not None
        left_out, seen = incremental_state.get(_COLUMNS, (0, 0))
        starts, length = self.documents.of_last(tokens), tokens.size(1)
        first, latest = torch.stack((starts.min(), starts.max())).tolist()
        # new tokens may be of documents before the last
        packed = self.documents.packed(tokens, False) if latest > seen else None
        if seen == 0 or latest >= seen:
            incremental_state.clear()
            left_out = first if packed is not None else min(first, seen)
        incremental_state[_COLUMNS] = (left_out, length)
        column = torch.arange(length, device=tokens.device)
        shown = tokens.masked_fill(column < starts, self.padding_idx)[:, left_out:]
        x, extra = compute(shown, None, incremental_state)
        if packed is not None:
            x, extra = self._apart(compute, packed, True)
        new = length - seen
        states = [state[-new:] for state in extra["inner_states"]]
        return x[:, -new:], {**extra, "inner_states": states}
