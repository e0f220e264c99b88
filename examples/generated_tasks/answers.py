"""The criterion of generated tasks: the loss of the answer, and how often all of it is correct.

For data with one correct answer to each input, such as the data that ``make.py`` writes.
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

    log_probs: Tensor  # (N, V), of the N answer tokens of all samples
    targets: Tensor  # (B, T), the tokens of the samples
    asked: Tensor  # (B, T), True at the N answer tokens


@register_criterion("answer_cross_entropy", dataclass=FairseqDataclass)
class AnswerCrossEntropyCriterion(FairseqCriterion):
    """Cross-entropy of the answer tokens, for all families of models.

    For translation, the answer is the target.  For a language model, it is the text after the
    symbol ``<answer>``, including ``</s>``.  For a masked language model, ``</s>`` is excluded: all
    answer tokens and no other tokens are masked, so the model sees the length of the answer.

    The log has ``loss`` in bits per token, ``accuracy``, the percentage of correct tokens, and
    ``exact_match``, the percentage of answers with all tokens correct.  For autoregressive models,
    greedy search gives the correct answer if and only if the most probable token after each prefix
    of the correct answer is correct, so nothing has to be generated.

    Raises:
        UsageError: the dictionary lacks ``<answer>``, or ``--sample-break-mode`` is not ``eos`` and
            the task is no translation.
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
                f"{_NAME}: give --task translation, or language_modeling or masked_lm with "
                "--sample-break-mode eos, so that each sample is one line"
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
            the loss summed over the answer tokens, their number, and the logging output.
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
        """The predictions of an autoregressive model for the answers, including ``</s>``."""
        targets = sample["target"]
        asked = targets.ne(self.padding_idx)
        if "prev_output_tokens" not in sample["net_input"]:
            asked &= self._after(targets)
        log_probs = model.get_normalized_probs(model(**sample["net_input"]), log_probs=True)
        return _Predicted(log_probs[asked], targets, asked)

    def _masked(self, model: BaseFairseqModel, sample: Dict[str, Any]) -> _Predicted:
        """The predictions of a masked language model for answers whose tokens are all masked."""
        given, hidden = sample["net_input"]["src_tokens"], sample["target"]
        tokens = torch.where(hidden.eq(self.padding_idx), given, hidden)  # undo fairseq's masks
        asked = self._after(tokens) & tokens.ne(self.padding_idx) & tokens.ne(self.end)
        inputs = {**sample["net_input"], "src_tokens": tokens.masked_fill(asked, self.mask)}
        logits = model(**inputs, masked_tokens=asked)[0]
        return _Predicted(F.log_softmax(logits.float(), dim=-1), tokens, asked)

    def _after(self, tokens: Tensor) -> Tensor:
        """A mask (B, T), True for tokens after the symbol ``<answer>``."""
        begins = tokens.eq(self.answer)
        return begins.cumsum(dim=1).gt(0) & ~begins

    @staticmethod
    def reduce_metrics(logging_outputs: List[Dict[str, Any]]) -> None:
        """Log the loss, the accuracy of tokens and the percentage of correct answers."""
        names = ("loss", "sample_size", "nsentences", "ncorrect", "nexact")
        loss, size, answers, correct, exact = (
            sum(output.get(name, 0) for output in logging_outputs) for name in names
        )
        metrics.log_scalar("loss", loss / size / math.log(2), size, round=3)
        metrics.log_scalar("accuracy", 100 * correct / size, size, round=2)
        metrics.log_scalar("exact_match", 100 * exact / answers, answers, round=2)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True: fairseq may sum logging outputs across workers."""
        return True
