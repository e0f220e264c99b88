"""Small translation models for the conversions, with their data."""

import shutil
from functools import partial
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

import torch
from support.conversion import SYMBOLS, save_folder
from support.helpers import TINY, parse
from support.model_folders import translation_model, write_state

from fairseq_posenc.exchange import FORMATS
from fairseq_posenc.exchange.huggingface.table import FC1, FC2
from fairseq_posenc.exchange.huggingface.translation import marian_sinusoids

WORDS = [f"w{number}" for number in range(40)]
SHARED = ["--share-all-embeddings"]
NORMS_FIRST = ["--encoder-normalize-before", "--decoder-normalize-before"]


@torch.no_grad()
def write_translation(
    folder: Path,
    *flags: str,
    words: Sequence[str] = WORDS,
    target: Optional[Sequence[str]] = None,
    longest: int = 60,
    arch: str = "posenc_transformer",
) -> Path:
    """Write a model of random weights, none of which is a zero or a one, with its dictionaries.

    The folder is emptied.  The target has other words only where they are given; *longest* is the
    longest source and target, in tokens.  Returns the file of the model.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    cfg: Any = parse(arch, *TINY, *flags)
    for name in ("max_source_positions", "max_target_positions"):
        setattr(cfg.task, name, longest)
        setattr(cfg.model, name, longest)
    model = translation_model(cfg, folder, words, words if target is None else target)
    for parameter in model.parameters():
        parameter.add_(0.2 * torch.randn_like(parameter))
    write_state(folder, cfg, model)
    return folder / "model.pt"


#: The classes of transformers for translation.
SEQ2SEQ = ("hf-marian", "hf-bart", "hf-mbart", "hf-m2m100", "hf-t5")
#: The rows of a table of positions in front of the first position.
_FRONT = {"hf-marian": 0, "hf-bart": 2, "hf-mbart": 2}


def write_seq2seq(name: str, folder: Path) -> Path:
    """A translation model of a class of transformers, with gains that are not one.

    Gains are powers of two and roots of sizes whole, so that no product is rounded.
    """
    channels, width = 16, 64
    importer: Any = FORMATS[name].importer
    target = importer.source
    state: Dict[str, torch.Tensor] = {}
    entries = [e.theirs for e in target.entries if e.ours and "position" not in e.theirs]
    config: Dict[str, Any] = {e: 2 for e in entries if e.endswith(("layers", "heads"))}
    sizes = {"d_model": channels, "d_ff": width, "encoder_ffn_dim": width, "decoder_ffn_dim": width}
    config.update({entry: size for entry, size in sizes.items() if entry in entries})
    config.update({entry: 1 for entry in config if entry.endswith("heads")})
    config.update(d_kv=16, relative_attention_num_buckets=32, relative_attention_max_distance=128)
    config.update(pad_token_id=1, eos_token_id=4, bos_token_id=3, decoder_start_token_id=4)
    config.update(model_type=target.model_type, max_position_embeddings=40)
    shapes = {FC1: (width, channels), FC2: (channels, width)}
    parts = ("weight", "bias") if name != "hf-t5" else ("weight",)
    settings = {"feed_forward": "mlp"}
    for stack in target.stacks:
        for layer in range(2):
            for joint in stack.joints:
                if not joint.when(settings, layer):
                    continue
                (ours,), prefix = joint.ours, stack.layer.format(layer)
                shape = shapes.get(ours, (channels, channels))
                norm = ours.endswith("layer_norm")
                state[f"{prefix}{joint.theirs}.weight"] = (
                    2.0 ** torch.randint(-1, 2, (channels,)) if norm else torch.randn(shape)
                )
                if "bias" in parts:
                    state[f"{prefix}{joint.theirs}.bias"] = torch.randn(shape[0])
        for joint in stack.outside:
            table = joint.theirs.endswith("relative_attention_bias")
            for part in parts:
                values = torch.randn(32, 1) if table else 2.0 ** torch.randint(-1, 2, (channels,))
                state[f"{joint.theirs}.{part}"] = values
        if name in _FRONT:
            rows = (40 + _FRONT[name], channels)
            table = marian_sinusoids(*rows) if name == "hf-marian" else torch.randn(rows)
            state[f"model.{stack.side}.embed_positions.weight"] = table
    state[target.shared] = torch.randn(len(SYMBOLS), channels)
    return save_folder(folder, config, state, SYMBOLS)


#: Writes a random model of each class to a folder; returns what is given to ``import``.
SOURCES = {name: partial(write_seq2seq, name) for name in SEQ2SEQ}
