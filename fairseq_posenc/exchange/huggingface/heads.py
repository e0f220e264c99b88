"""Output layers, heads and labels of transformers' classes for encoders."""

import os
from typing import Any, Dict, List, Mapping

from fairseq_posenc.checkpoints.loader import named_labels
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.huggingface.table import Architecture
from fairseq_posenc.exchange.native import NativeCheckpoint
from fairseq_posenc.flags.options import option
from fairseq_posenc.models import kinds
from fairseq_posenc.serving.huggingface.tokenizer import RESERVED

#: Settings of the output layer, and those of classification heads.
LM_SETTINGS = ("lm_head", "untie_weights_roberta")
CLASSIFIER_SETTINGS = (
    *("pooler_activation_fn", "spectral_norm_classification_head"),
    *("pooler", "pooler_norm"),
)
#: The name of an imported token classifier.
TOKEN_HEAD = "token_classification_head"


def output(modules: Mapping[str, str], **more: Any) -> Architecture:
    """The output layer of a masked language model.

    Args:
        modules: names of the class by ours, behind the start of the names in our output layer.
        more: other fields of the architecture.
    """
    ours = {kinds.LM_HEAD + name: theirs for name, theirs in modules.items()}
    return Architecture(ours, any=CLASSIFIER_SETTINGS, **more)


def classifiers(
    modules: Mapping[str, str], of_tokens: Mapping[str, str], prefix: str, **more: Any
) -> Dict[str, Architecture]:
    """A classifier of texts and one of tokens, by the names of their architectures.

    Args:
        modules: names of the class by ours, in a classifier of texts.
        of_tokens: the same for tokens; the name of ours is empty for a single projection.
        prefix: start of the names of the architectures.
        more: other fields of both.
    """
    lacking = {name for name in CLASSIFIER_SETTINGS if name != "pooler_norm"}
    found = {}
    for what, start, head, names, unused in (
        ("Sequence", kinds.CLASSIFICATION_HEADS, kinds.SENTENCE_HEAD, modules, ()),
        ("Token", kinds.TOKEN_HEADS, TOKEN_HEAD, of_tokens, lacking if "" in of_tokens else ()),
    ):
        ours = {f"{start}{{}}.{name}".rstrip("."): theirs for name, theirs in names.items()}
        found[f"{prefix}For{what}Classification"] = Architecture(
            ours, start, any=(*LM_SETTINGS, *unused), usual=head, **more
        )
    return found


def is_regression(checkpoint: NativeCheckpoint) -> bool:
    """True if the checkpoint was trained on numbers instead of classes."""
    return bool(option(checkpoint.task, "regression_target", False))


def label_entries(checkpoint: NativeCheckpoint, head: str, classes: int) -> Dict[str, Any]:
    """The entries of config.json that name the classes of a head.

    The names are those of ``label/dict.txt`` in the data of the training, and otherwise ``LABEL_0``
    and so on.

    Args:
        head: the name of the head.
        classes: their number.

    Raises:
        UsageError: the data name fewer classes.
    """
    labels: List[str] = []
    trained = option(checkpoint.task, "classification_head_name") or head
    if checkpoint.data is not None and trained == head and not is_regression(checkpoint):
        labels = named_labels(os.path.join(checkpoint.data, "label", "dict.txt"), classes)
    labels = labels or [f"LABEL_{number}" for number in range(classes)]
    entries: Dict[str, Any] = {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }
    if is_regression(checkpoint):
        entries["problem_type"] = "regression"
    return entries


def read_labels(config: Config) -> List[str]:
    """The names of classes in config.json that a dictionary of fairseq can hold.

    Returns:
        the names in order, empty if they are numbers alone, or one of them is no symbol.

    Raises:
        UsageError: the entry does not name classes by number.
    """
    config.classes_note("")  # checks the entry
    names: Mapping[str, Any] = config.get("id2label", {})
    labels = [names[number] for number in sorted(names, key=int)]
    usable = [
        label
        for number, label in enumerate(labels)
        if isinstance(label, str)
        and label.split() == [label]
        and label not in (*RESERVED, f"LABEL_{number}")
    ]
    return labels if len(set(usable)) == len(labels) else []
