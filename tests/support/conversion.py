"""Small models of other libraries, and helpers that run and check conversions."""

import json
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest
import torch
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder
from torch import Tensor

from fairseq_posenc.cli import main

SYMBOLS = "[PAD] [unused1] [UNK] [CLS] [SEP] [MASK] the ##s 公园 a b".split()
#: fairseq's names for the special symbols.
OURS = {"[CLS]": "<s>", "[PAD]": "<pad>", "[SEP]": "</s>", "[UNK]": "<unk>", "[MASK]": "<mask>"}
CONFIG: Dict[str, Any] = {
    "model_type": "roformer",
    "architectures": ["RoFormerForMaskedLM"],
    "vocab_size": len(SYMBOLS),
    "hidden_size": 16,
    "embedding_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 40,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}


def linear(name: str, out: int, into: int) -> Dict[str, Tensor]:
    return {f"{name}.weight": torch.randn(out, into) * into**-0.5, f"{name}.bias": torch.randn(out)}


def norm(name: str, size: int) -> Dict[str, Tensor]:
    return {f"{name}.weight": 1 + torch.randn(size) / 5, f"{name}.bias": torch.randn(size) / 5}


def roformer_weights() -> Dict[str, Tensor]:
    """Random weights of a RoFormer masked language model (CONFIG) under transformers' names."""
    state = {
        "roformer.embeddings.word_embeddings.weight": torch.randn(len(SYMBOLS), 16),
        "roformer.embeddings.token_type_embeddings.weight": torch.randn(2, 16),
        **norm("roformer.embeddings.LayerNorm", 16),
        **linear("cls.predictions.transform.dense", 16, 16),
        **norm("cls.predictions.transform.LayerNorm", 16),
        "cls.predictions.bias": torch.randn(len(SYMBOLS)),
    }
    for number in range(2):
        layer = f"roformer.encoder.layer.{number}."
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            state.update(linear(f"{layer}attention.{part}", 16, 16))
        state.update(norm(layer + "attention.output.LayerNorm", 16))
        state.update(linear(layer + "intermediate.dense", 24, 16))
        state.update(linear(layer + "output.dense", 16, 24))
        state.update(norm(layer + "output.LayerNorm", 16))
    return state


def write_folder(folder: Path, state: Any = None, symbols: Any = None, **config: Any) -> Path:
    """Write a folder with a RoFormer as transformers saved it in 2021."""
    state = roformer_weights() if state is None else state
    return save_folder(folder, {**CONFIG, **config}, state, SYMBOLS if symbols is None else symbols)


def save_folder(folder: Path, config: Any, state: Any, symbols: List[str]) -> Path:
    """Write a model folder of transformers with a pytorch_model.bin."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("".join(f"{s}\n" for s in symbols), encoding="utf-8")
    torch.save(state, folder / "pytorch_model.bin")
    return folder


def learn_pieces(prefix: Path, lines: List[str], **flags: Any) -> Path:
    """Train SentencePiece on lines of text; returns the path of its model, PREFIX.model."""
    module = pytest.importorskip("sentencepiece", reason="subwords are learned with it")
    text = prefix.with_suffix(".train")
    text.write_text("\n".join(lines) + "\n", encoding="utf-8")
    module.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(prefix), minloglevel=2, **flags
    )
    return prefix.with_suffix(".model")


def write_ids(prefix: Path, lines: List[List[int]]) -> None:
    """Write a split of binarised data as fairseq-preprocess does."""
    builder = MMapIndexedDatasetBuilder(f"{prefix}.bin", dtype=np.int32)
    for line in lines:
        builder.add_item(torch.tensor(line))
    builder.finalize(f"{prefix}.idx")


def convert(*arguments: Any) -> None:
    """Run ``fairseq-posenc ARGUMENT...`` in this process."""
    main([str(argument) for argument in arguments])


def refuses(words: List[str], *arguments: Any) -> str:
    """Assert that a command fails with one line that has all *words*, and writes no target."""
    there = [Path(target).exists() for target in arguments[3:4]]
    with pytest.raises(SystemExit) as error:
        convert(*arguments)
    assert [Path(target).exists() for target in arguments[3:4]] == there
    message = str(error.value)
    assert message.startswith("fairseq_posenc: error: ") and "\n" not in message
    for word in words:
        assert word in message, message
    return message


def load(folder: Path) -> Any:
    """Load an imported model and its dictionary by the function that fairseq's commands use."""
    from fairseq.checkpoint_utils import load_model_ensemble_and_task

    path = str(folder / "checkpoint.pt")
    models, _, task = load_model_ensemble_and_task([path], arg_overrides={"data": str(folder)})
    return models[0].eval(), task.source_dictionary


@pytest.fixture(scope="session")
def transformers() -> Any:
    """The transformers package; skips the test if it cannot be used."""
    pytest.importorskip("safetensors", reason="the models are saved with safetensors")
    package = pytest.importorskip("transformers", reason="its outputs are the reference")
    if not package.utils.is_torch_available():
        pytest.skip("this transformers needs a newer PyTorch")
    return package


def reload(transformers: Any, name: str, folder: Path) -> Any:
    """Load a transformers model; the folder must have all its parameters and no others."""
    model, info = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return model.eval()
