"""Small foreign models for the tests of the conversions, and the commands that convert."""

import json
from pathlib import Path
from typing import Any, Dict, List, Optional

import numpy as np
import pytest
import torch
from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder
from torch import Tensor

from fairseq_posenc.cli import main

SYMBOLS = "[PAD] [unused1] [UNK] [CLS] [SEP] [MASK] the ##s 公园 a b".split()
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
    """Random weights of a masked RoFormer of the shape in CONFIG, by transformers' names."""
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
    """A RoFormer as transformers saved it in 2021."""
    state = roformer_weights() if state is None else state
    return save_folder(folder, {**CONFIG, **config}, state, SYMBOLS if symbols is None else symbols)


def save_folder(folder: Path, config: Any, state: Any, symbols: List[str]) -> Path:
    """A folder of transformers with a pytorch_model.bin."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("".join(f"{s}\n" for s in symbols), encoding="utf-8")
    torch.save(state, folder / "pytorch_model.bin")
    return folder


def reference_folder(folder: Path, reference: Dict[str, Any], safe: bool, **more: Tensor) -> Path:
    """The model of a reference of tests/golden as transformers saves it, with *more* tensors.

    A *safe* one is a model.safetensors, which leaves tied parameters out.
    """
    state = {**reference["state_dict"], **more}
    save_folder(folder, reference["config"], state, reference["meta"]["symbols"])
    roles = {f"{role}_token": f"[{role.upper()}]" for role in ("unk", "sep", "pad", "cls", "mask")}
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, **roles}))
    if safe:
        reason = "the folder has a model.safetensors"
        safetensors = pytest.importorskip("safetensors.torch", reason=reason)
        (folder / "pytorch_model.bin").unlink()
        kept = {name: value for name, value in state.items() if name not in reference["tied"]}
        safetensors.save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def read_symbols(folder: Path) -> List[str]:
    """The vocab.txt of a folder."""
    return (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()


def imported_logits(
    folder: Path,
    symbols: List[str],
    inputs: Dict[str, Tensor],
    head: Optional[str] = None,
    labelled: bool = True,
) -> Tensor:
    """Logits of an imported model for *inputs* by transformers' names, in the order of *symbols*.

    Where there are tokens: (N, V) of the language model; classes (B, N) of a head.  The segments of
    the reference are left out if not *labelled*.
    """
    model, dictionary = load(folder)
    names = ("[CLS]", "<s>"), ("[PAD]", "<pad>"), ("[SEP]", "</s>"), ("[UNK]", "<unk>")
    special = {**dict(names), "[MASK]": "<mask>"}
    ours = torch.tensor([dictionary.index(special.get(symbol, symbol)) for symbol in symbols])
    tokens, real = ours[inputs["input_ids"]], inputs["attention_mask"].bool()
    assert torch.equal(tokens.ne(dictionary.pad()), real)
    labels = inputs["token_type_ids"] if labelled else None
    with torch.no_grad():
        logits, _ = model(tokens, segment_labels=labels, classification_head_name=head)
    return logits if head else logits[..., ours][real]


def write_ids(prefix: Path, lines: List[List[int]]) -> None:
    """A split of binarised data, as fairseq-preprocess writes it."""
    builder = MMapIndexedDatasetBuilder(f"{prefix}.bin", dtype=np.int32)
    for line in lines:
        builder.add_item(torch.tensor(line))
    builder.finalize(f"{prefix}.idx")


def convert(*arguments: Any) -> None:
    """The command, in this process."""
    main([str(argument) for argument in arguments])


def refuses(words: List[str], *arguments: Any) -> str:
    """The command must stop with one line that has all of *words*, and write no target."""
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
    """The imported model, by the function that every fairseq command uses."""
    from fairseq.checkpoint_utils import load_model_ensemble_and_task

    path = str(folder / "checkpoint.pt")
    models, _, task = load_model_ensemble_and_task([path], arg_overrides={"data": str(folder)})
    return models[0].eval(), task.source_dictionary


@pytest.fixture(scope="session")
def transformers() -> Any:
    """The package, where it is installed."""
    pytest.importorskip("safetensors", reason="the models are saved with safetensors")
    package = pytest.importorskip("transformers", reason="there is nothing to compare with")
    if not package.utils.is_torch_available():
        pytest.skip("this transformers needs a newer PyTorch")
    return package


def foreign(transformers: Any, name: str, folder: Path, **config: Any) -> Any:
    """A random model of transformers, saved with a vocabulary."""
    config = {**CONFIG, **config}
    del config["model_type"], config["architectures"]
    config = transformers.RoFormerConfig(**config)
    config.architectures = [name]
    model = getattr(transformers, name)(config).eval()
    for parameter in model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("".join(f"{s}\n" for s in SYMBOLS), encoding="utf-8")
    return model


def reload(transformers: Any, name: str, folder: Path) -> Any:
    """A model of transformers from a folder, which has all its parameters and no others."""
    model, info = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return model.eval()
