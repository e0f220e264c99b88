"""Several classifiers for one task, whose logits are averaged (RoBERTa section 5.1)."""

from typing import List, Optional, Sequence

import torch

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.serving.masked_lm import (
    Complain,
    Example,
    MaskedLanguageModel,
    Prediction,
    prediction_of,
)
from fairseq_posenc.serving.model_folder import Head, ModelFolder, refuse_without_head
from fairseq_posenc.serving.scores import BATCH


def check_same_heads(folders: Sequence[ModelFolder], flag: str) -> Head:
    """The head of the first of several model folders, which all others must equal but in name.

    Args:
        folders: the model folders.
        flag: what named the further ones, for messages.

    Raises:
        UsageError: one is no classifier, or has other labels or inputs.
    """
    first, *others = [refuse_without_head(folder, folder.path) for folder in folders]
    for folder, head in zip(folders[1:], others):
        if head._replace(name=first.name) != first:
            raise UsageError(
                f"{flag} {folder.path}: is a classifier for another task than {folders[0].path} "
                f"(labels {', '.join(head.labels)}, not {', '.join(first.labels)}, or other "
                "inputs); give models of one task"
            )
    return first


class Ensemble:
    """Classifiers for one task as one; each prepares the text as its own folder says.

    Args:
        models: the classifiers.
        head: their head.
    """

    def __init__(self, models: Sequence[MaskedLanguageModel], head: Head) -> None:
        self._models, self._head = models, head

    def predict(
        self, examples: Sequence[Example], complain: Complain, max_tokens: int = BATCH
    ) -> List[Optional[Prediction]]:
        """The predictions of the averaged logits; of a regression, of the averaged values.

        Args:
            examples: texts, or pairs of texts.
            complain: as for :meth:`MaskedLanguageModel.predict`; the first model speaks for all.
            max_tokens: tokens in a batch.

        Returns:
            a prediction for each, or None for those that a model cannot read.
        """

        def silent(number: int, reason: str) -> None:
            pass

        outputs = [
            model.class_logits(examples, silent if place else complain, max_tokens)
            for place, model in enumerate(self._models)
        ]
        found: List[Optional[Prediction]] = []
        for rows in zip(*outputs):
            read = [row for row in rows if row is not None]
            whole = len(read) == len(rows)
            found.append(prediction_of(torch.stack(read).mean(0), self._head) if whole else None)
        return found
