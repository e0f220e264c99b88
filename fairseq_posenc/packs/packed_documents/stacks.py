"""``--document-mask``, and the stacks that compute each document of a packed sample alone."""

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from fairseq.data import Dictionary
from torch import Tensor, nn

from fairseq_posenc.attention.cache import IncrementalState
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.inherit import is_fine_tuning
from fairseq_posenc.configuration.features import Completed, refuse_flags, register_feature
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.registry import register_replacement
from fairseq_posenc.flags.settings import setting
from fairseq_posenc.models.language_model import LanguageModelDecoder
from fairseq_posenc.models.roberta import SentenceEncoder
from fairseq_posenc.models.segments import samples_of
from fairseq_posenc.packs.packed_documents.documents import FLAG, DocumentSplitter, Packed
from fairseq_posenc.stacks.decoder import EncoderOut
from fairseq_posenc.stacks.encoder import Encoded, Requested

NAME = "document_mask"
#: Flags of position rules that also set the separators of documents.
READS = ("position_separators",)
#: Settings under which documents cannot be computed separately, and the reasons.
_WHY_NOT = {
    "untie_cls": "[CLS] is the first token of a sample, and documents after the first have none",
    "funnel_stages": "[CLS] is not pooled, and documents after the first have none",
    "memory_length": "a memory holds the tokens before a sample, whatever their document",
    "cuda_graphs": "the cache is rebuilt whenever a document begins",
}


@dataclass
class DocumentFlags:
    """The flag of packed samples."""

    document_mask: Optional[bool] = setting(
        False,
        "compute each document of a sample as if it were alone: attention stays in the document, "
        "whose positions start at 0; documents end at --position-separators",
        role="free",
        exported="the exported model treats each text as one document",
    )


def check_documents(completed: Completed) -> None:
    """Refuse ``--document-mask`` if it contradicts the model, or if samples are not packed."""
    cfg, settings, task = completed.cfg, completed.settings, completed.task
    if not option(cfg, "document_mask"):
        return
    refuse_flags(cfg, FLAG, _WHY_NOT, "drop it, or")
    if not completed.fresh:
        return
    if is_fine_tuning(settings):
        raise UsageError(f"{FLAG}: the samples of --task {task} are not packed; drop it")
    samples = samples_of(settings)
    unpacked = samples and samples.unpacked(settings)
    if unpacked:
        raise UsageError(f"{FLAG}: {unpacked}")
    if (
        str(option(settings, "sample_break_mode")) == "eos"
        and option(cfg, "position_separators") is None
    ):
        raise UsageError(
            f"{FLAG}: --sample-break-mode eos makes each line a sample, so no sample has several "
            "documents; drop the flag, or give --sample-break-mode none or complete"
        )


register_feature(DocumentFlags, models=["posenc_masked_lm", "posenc_lm"], check=check_documents)


#: Key of two counts in the incremental state: tokens left out of the cache, and tokens seen.
_COLUMNS = "documents"
Output = Tuple[Tensor, Dict[str, Any]]


@register_replacement(NAME, of=LanguageModelDecoder, reads=READS)
class DocumentDecoder(LanguageModelDecoder):
    """Decoder that computes each document of a sample alone.

    The cache holds only the last document of each sample, padded on the left.  Arguments are those
    of the base class.
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
        """Compute the documents of each group, and put their states into the samples."""
        outputs: List[Tensor] = []
        states: List[List[Tensor]] = []
        for group in packed.groups:
            x, extra = compute(packed.texts(group), padding=group.padding(causal))
            outputs.append(x)
            states.append([] if self.training else extra["inner_states"])
        extra = {"attn": [None], "inner_states": packed.join_states(states)}
        return packed.join(outputs), extra

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


@register_replacement(
    NAME,
    of=SentenceEncoder,
    reads=READS,
    no_matrix="a sample has an attention matrix for each of its documents; give a model that was "
    "trained without the flag",
)
class DocumentEncoder(SentenceEncoder):
    """Encoder that computes each document of a sample alone.

    The original tokens decide where documents end, because masks can hide separators, and random
    tokens can be separators.  Arguments are those of the base class.
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
        states = packed.join_states([part.states for part in parts])
        return Encoded(packed.join([part.x for part in parts]), states)

    def forward(self, *args: Any, **kwargs: Any) -> Dict[str, List[Tensor]]:
        """Refuse a call of the stack by itself.

        Raises:
            UsageError: always; :meth:`features` keeps documents apart.
        """
        raise UsageError(
            f"{FLAG}: the stack alone does not keep documents apart; call the model, or "
            "extract_features of its encoder"
        )
