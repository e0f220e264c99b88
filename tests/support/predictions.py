"""What a fine-tuned model says of a binarised test set, without text in between."""

from pathlib import Path
from typing import List, Tuple

import torch
from fairseq import checkpoint_utils


def of_binarised(data: Path, model_folder: Path) -> Tuple[List[str], List[float]]:
    """The labels and their probabilities for the examples of *data*/…/test, in order."""
    settings = {"data": str(data), "no_shuffle": True}
    checkpoint = [str(model_folder / "checkpoint.pt")]
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(checkpoint, settings)
    dataset = task.load_dataset("test")
    batch = dataset.collater([dataset[number] for number in range(len(dataset))])
    assert "target" not in batch
    head = {"features_only": True, "classification_head_name": "sentence_classification_head"}
    with torch.no_grad():
        logits = model.eval()(**batch["net_input"], **head)[0]
    best, labels = logits.softmax(-1).max(-1), task.label_dictionary
    return [labels[n + labels.nspecial] for n in best.indices], best.values.tolist()
