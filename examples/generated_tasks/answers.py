"""The loss of an answer alone, and how often the whole answer is right.

For data with one right answer to every input, such as those of ``make.py``.
"""

import math
from typing import Any, Dict, List, NamedTuple, Tuple

import torch
import torch.nn.functional as F
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from generated_tasks.registry import ANSWER

_NAME = "--criterion answer_cross_entropy"


class _Predicted(NamedTuple):
    """What a model predicts for the answers of B samples."""

    log_probs: Tensor  # (N, V) of the N tokens of all answers
    targets: Tensor  # (B, T) tokens of the samples
    asked: Tensor  # (B, T) whether a token is of the answer; N tokens are


@register_criterion("answer_cross_entropy", dataclass=FairseqDataclass)
class AnswerCrossEntropyCriterion(FairseqCriterion):
    """Cross-entropy of the tokens of the answer, in all families of models.

    In a translation the answer is the target.  In a language model it is what follows the symbol
    ``<answer>``, to the end of the sentence.  In a masked language model it is the same without the
    end: all tokens of the answer and no others are masked, so the model is told its length.

    The log has ``loss`` in bits per token, ``accuracy``, the percentage of tokens predicted right,
    and ``exact_match``, the percentage of answers with all tokens right.  If a model writes token
    by token, greedy search gives the right answer if and only if the most probable token after each
    right beginning is right, so nothing has to be generated.

    Raises:
        UsageError: the data have no such symbol or several samples in one text, or the task is none
            of the three.
    """

    def __init__(self, cfg: FairseqDataclass, task: FairseqTask) -> None:
        super().__init__(task)
        self.answer = task.target_dictionary.index(ANSWER)
        self.mask: Any = getattr(task, "mask_idx", None)
        self.end = task.target_dictionary.eos()
        settings: Any = task.cfg or vars(task).get("args")  # some tasks have args instead of cfg
        if hasattr(settings, "source_lang"):  # a translation
            return
        mode = getattr(settings, "sample_break_mode", None)
        if str(getattr(mode, "value", mode)) != "eos":
            raise UsageError(
                f"{_NAME}: is for --task translation, and with --sample-break-mode eos, so that a "
                "sample is a line, for language_modeling and masked_lm"
            )
        if self.answer == task.target_dictionary.unk():
            raise UsageError(
                f"{_NAME}: {settings.data}: its dictionary has no symbol {ANSWER}; give a "
                "folder that make.py wrote"
            )

    def forward(
        self, model: BaseFairseqModel, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, int, Dict[str, Any]]:
        """Compute the loss of a batch of B samples.

        Returns:
            the loss summed over the tokens of the answers, their number, and the logging output.
        """
        found = (self._written if self.mask is None else self._masked)(model, sample)
        expected = found.targets[found.asked]
        loss = F.nll_loss(found.log_probs, expected, reduction="sum")
        right = found.log_probs.detach().argmax(dim=-1).eq(expected)
        wrong = torch.zeros_like(found.asked)
        wrong[found.asked] = ~right
        output = {
            "loss": loss.detach(),
            "ntokens": sample["ntokens"],
            "nsentences": len(found.targets),
            "sample_size": len(expected),
            "ncorrect": right.sum(),
            "nexact": (~wrong.any(dim=1)).sum(),
        }
        return loss, len(expected), output

    def _written(self, model: BaseFairseqModel, sample: Dict[str, Any]) -> _Predicted:
        """Answers that are written token by token, with their end."""
        targets = sample["target"]
        asked = targets.ne(self.padding_idx)
        if "prev_output_tokens" not in sample["net_input"]:
            asked &= self._after(targets)
        log_probs = model.get_normalized_probs(model(**sample["net_input"]), log_probs=True)
        return _Predicted(log_probs[asked], targets, asked)

    def _masked(self, model: BaseFairseqModel, sample: Dict[str, Any]) -> _Predicted:
        """Answers whose tokens are all masked, and predicted at once."""
        given, hidden = sample["net_input"]["src_tokens"], sample["target"]
        tokens = torch.where(hidden.eq(self.padding_idx), given, hidden)  # before fairseq's masks
        asked = self._after(tokens) & tokens.ne(self.padding_idx) & tokens.ne(self.end)
        inputs = {**sample["net_input"], "src_tokens": tokens.masked_fill(asked, self.mask)}
        logits = model(**inputs, masked_tokens=asked)[0]
        return _Predicted(F.log_softmax(logits.float(), dim=-1), tokens, asked)

    def _after(self, tokens: Tensor) -> Tensor:
        """Which tokens (B, T) follow the symbol before the answer."""
        begins = tokens.eq(self.answer)
        return begins.cumsum(dim=1).gt(0) & ~begins

    @staticmethod
    def reduce_metrics(logging_outputs: List[Dict[str, Any]]) -> None:
        """Log the loss, the accuracy of tokens and the percentage of right answers."""
        names = ("loss", "sample_size", "nsentences", "ncorrect", "nexact")
        loss, size, answers, correct, exact = (
            sum(output.get(name, 0) for output in logging_outputs) for name in names
        )
        metrics.log_scalar("loss", loss / size / math.log(2), size, round=3)
        metrics.log_scalar("accuracy", 100 * correct / size, size, round=2)
        metrics.log_scalar("exact_match", 100 * exact / answers, answers, round=2)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True: fairseq may add the logging outputs of workers."""
        return True
