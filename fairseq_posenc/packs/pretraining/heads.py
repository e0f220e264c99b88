"""Pre-training heads for the relation of two texts and for span boundaries, and their losses.

BERT, Devlin et al., arXiv 1810.04805, section 3.1; ALBERT, Lan et al., arXiv 1909.11942, section
3.1; SpanBERT, Joshi et al. 2020, arXiv 1907.10529, section 3.2.
"""

from typing import Any, ClassVar, Dict, List, Sequence, Tuple

import torch
import torch.nn.functional as F
from fairseq import utils
from fairseq.criterions import register_criterion
from fairseq.criterions.masked_lm import MaskedLmConfig
from fairseq.logging import metrics
from fairseq.models import BaseFairseqModel
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from fairseq_posenc.layers.heads import HEADS, PRETRAINING, StateHead, register_head
from fairseq_posenc.layers.parameters import apply_norms_and_biases, initialise
from fairseq_posenc.training.base import Sums
from fairseq_posenc.training.masked_lm import MaskedLMAccuracyCriterion, Recorded

_CLASSIFIERS, _RELATION = "classification_heads", "sentence_relation"
#: size and number of the embeddings of positions within a span (section 4.2); tokens at further
#: positions share the last embedding
POSITION_SIZE, POSITIONS = 200, 64


class ObjectiveHead(StateHead):
    """A head with a loss, for ``--criterion masked_lm_pairs``."""

    #: prefix of the names of its entries in the log
    name: ClassVar[str]
    #: the flag of the task that adds the head
    flag: ClassVar[str]
    #: the entry of the logging output with the number of its predictions
    counted: ClassVar[str]

    def inputs(self, sample: Dict[str, Any], masked: Tensor) -> Dict[str, Any]:
        """Inputs of :meth:`read` besides the states; *masked* (B, T) marks tokens to predict."""
        return {}

    def loss(
        self, output: Tensor, sample: Dict[str, Any], masked: Tensor
    ) -> Tuple[Tensor, Dict[str, Tensor]]:
        """The head's loss, to add to the summed loss of the masked tokens, and sums for the log.

        *output* is what :meth:`read` returned.
        """
        raise NotImplementedError

    @classmethod
    def log(cls, sums: Sums) -> None:
        """Log the loss in bits, and the accuracy in percent if there is one."""
        right, count = f"{cls.name}_ncorrect", sums[cls.counted]
        sums.log_bits(f"{cls.name}_loss", count)
        if right in sums:
            sums.log_percentage(f"{cls.name}_accuracy", right, count)


class RelationHead(ObjectiveHead):
    """A classifier that predicts from [CLS] whether the texts of a pair are as in the corpus."""

    module, counted = f"{_CLASSIFIERS}.{_RELATION}", "nsentences"

    def add(self, model: Any) -> None:
        """Add the classifier."""
        model.register_classification_head(_RELATION, num_classes=2)

    def read(self, model: Any, states: Sequence[Tensor], **inputs: Any) -> Tensor:
        """Logits (B, 2): class 0 for a pair as in the corpus, class 1 for any other."""
        return model.classification_heads[_RELATION](states[-1][:, :1])

    def loss(
        self, output: Tensor, sample: Dict[str, Any], masked: Tensor
    ) -> Tuple[Tensor, Dict[str, Tensor]]:
        """The mean loss of the pairs, times the number of masked tokens."""
        targets = sample["relation"]
        total = F.cross_entropy(output.float(), targets, reduction="sum")
        right = output.argmax(dim=-1).eq(targets).sum()
        entries = {f"{self.name}_loss": total.detach(), f"{self.name}_ncorrect": right}
        return masked.sum() * (total / len(targets)), entries


@register_head("nsp", paper="Devlin et al., arXiv 1810.04805", summary="next-sentence prediction")
class NextSentenceHead(RelationHead):
    """Predicts whether the second text of a pair follows the first, or is of another document."""

    name, flag = "nsp", "--pairs nsp"


@register_head("sop", paper="Lan et al., arXiv 1909.11942", summary="sentence-order prediction")
class SentenceOrderHead(RelationHead):
    """Predicts whether the texts of a pair are in order."""

    name, flag = "sop", "--pairs sop"


@register_head("sbo", paper="Joshi et al. 2020, arXiv 1907.10529", summary="tokens of spans")
class SpanBoundaryHead(ObjectiveHead):
    """Predicts the tokens of a span from the tokens before and after it."""

    name, flag = "sbo", "--span-boundary-objective"
    module, counted = "span_boundary_head", "sample_size"

    def add(self, model: Any) -> None:
        """Add the layers, with BERT's initialisation."""
        head = SpanBoundaryLayers(model.args.encoder_embed_dim, model.args.encoder_input_dim)
        apply_norms_and_biases(head, model.args)
        initialise(head.apply(init_bert_params), model.args)
        model.add_module(self.module, head)

    def inputs(self, sample: Dict[str, Any], masked: Tensor) -> Dict[str, Any]:
        """``spans``, True at the tokens of spans, which are the tokens to predict."""
        return {"spans": masked}

    def read(self, model: Any, states: Sequence[Tensor], **inputs: Any) -> Tensor:
        """Logits (N, V) of the N tokens of spans."""
        embedding = model.encoder.sentence_encoder.embed_tokens.weight
        return model.span_boundary_head(states[-1], inputs["spans"], embedding)

    def loss(
        self, output: Tensor, sample: Dict[str, Any], masked: Tensor
    ) -> Tuple[Tensor, Dict[str, Tensor]]:
        """The loss summed over the tokens of spans."""
        total = F.cross_entropy(output.float(), sample["target"][masked], reduction="sum")
        return total, {"sbo_loss": total.detach()}


#: All heads with a loss, in the order in which a task adds them.
OBJECTIVES = (SpanBoundaryHead, NextSentenceHead, SentenceOrderHead)
PRETRAINING.update({head.module: head.flag.split()[0] for head in OBJECTIVES})


class SpanBoundaryLayers(nn.Module):
    """Predicts the tokens of spans from the tokens before and after the span.

    Two layers with GELU and layer norm read the features x_{s-1} and x_{e+1} of these two tokens,
    and an embedding of the position within the span, i - s + 1.  The logits are the products of
    their output with the token embeddings, of size E.
    """

    def __init__(self, embed_dim: int, size: int) -> None:
        super().__init__()
        self.positions = nn.Embedding(POSITIONS, POSITION_SIZE)
        self.layers = nn.Sequential(
            nn.Linear(2 * embed_dim + POSITION_SIZE, embed_dim),
            nn.GELU(),
            nn.LayerNorm(embed_dim),
            nn.Linear(embed_dim, size),
            nn.GELU(),
            nn.LayerNorm(size),
        )

    def forward(self, features: Tensor, spans: Tensor, embedding: Tensor) -> Tensor:
        """Logits (N, V) of the N tokens of spans, in the order of ``features[spans]``.

        Args:
            features: (B, T, C).
            spans: (B, T), True at tokens of spans; each span lies between two tokens in no span.
            embedding: the embedding of the tokens, (V, E).
        """
        row, column = spans.nonzero(as_tuple=True)
        before, after = (index[row, column] for index in boundaries(spans))
        position = (column - before - 1).clamp(max=POSITIONS - 1)
        inputs = features[row, before], features[row, after], self.positions(position)
        return F.linear(self.layers(torch.cat(inputs, dim=-1)), embedding)


def boundaries(spans: Tensor) -> Tuple[Tensor, Tensor]:
    """For each token, the indices of the nearest tokens outside spans before and after it.

    *spans* (B, T) is True in spans.  Results (B, T) are undefined where there is no such token.
    """
    length = spans.size(1)
    numbers = torch.arange(length, device=spans.device)
    before = numbers.masked_fill(spans, 0).cummax(dim=1)[0]
    after = numbers.masked_fill(spans, length - 1).flip(1).cummin(dim=1)[0].flip(1)
    return before, after


@register_criterion("masked_lm_pairs", dataclass=MaskedLmConfig)
class MaskedLMPairsCriterion(MaskedLMAccuracyCriterion):
    """The mean loss of the masked tokens, plus the losses of span boundaries and of pairs.

    The span-boundary loss is added with ``--span-boundary-objective``, the pair loss if samples are
    pairs.  The log has ``loss``, the sum; ``mlm_loss``, ``accuracy`` and ``ppl`` of masked tokens;
    ``sbo_loss`` of the boundaries; and ``nsp_loss`` and ``nsp_accuracy``, or ``sop_loss`` and
    ``sop_accuracy``, of the pairs.  Losses are in bits, accuracies in percent.
    """

    def __init__(self, cfg: MaskedLmConfig, task: FairseqTask) -> None:
        super().__init__(cfg, task)
        self.heads = {name: HEADS.find(name).thing() for name in getattr(task, "heads", ())}

    def forward(
        self, model: BaseFairseqModel, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, Tensor, Dict[str, Any]]:
        """The sum of the losses, the number of masked tokens, and the logging output.

        The losses of the N masked tokens are summed, and the mean loss of the pairs is multiplied
        by N.  ``relation`` (B,) in *sample* is 0 for pairs as in the corpus and 1 for others.
        """
        masked = sample["target"].ne(self.padding_idx)
        asked = {name: head.inputs(sample, masked) for name, head in self.heads.items()}
        recorded = Recorded(model, **({"heads": asked} if asked else {}))
        total, size, output = super().forward(recorded, sample, reduce)
        output["mlm_loss"] = output["loss"]
        for name, head in self.heads.items():
            loss, entries = head.loss(recorded.output[1][name], sample, masked)
            total = total + loss
            output.update(entries)
        output["loss"] = total.detach()
        return total, size, output

    @staticmethod
    def reduce_metrics(logging_outputs: List[Dict[str, Any]]) -> None:
        """Log the losses and accuracies of one or more batches."""
        metrics.log_derived(  # the first ppl logged counts; fairseq's is of the total loss
            "ppl", lambda meters: utils.get_perplexity(meters["mlm_loss"].avg)
        )
        MaskedLMAccuracyCriterion.reduce_metrics(logging_outputs)
        sums = Sums(logging_outputs)
        if "mlm_loss" in sums:
            sums.log_bits("mlm_loss", sums["sample_size"])
        for head in OBJECTIVES:
            if f"{head.name}_loss" in sums:
                head.log(sums)
