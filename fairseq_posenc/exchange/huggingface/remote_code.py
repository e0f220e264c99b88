"""Export of translation models that transformers has no class for, together with their code.

The code is in ``templates/``, needs only PyTorch and transformers, and is loaded with
``trust_remote_code=True``.  It computes rotary positions with every scaling, biases that depend on
distances, and tables of positions; layers can have different rotations.  config.json holds the
rotary frequencies with all digits, and biases become tables, so the code needs no formulas.
"""

import importlib.util
import sys
import uuid
from functools import partial
from pathlib import Path
from typing import Any, Dict, List, Optional

import torch
from torch import nn

from fairseq_posenc.basics.errors import UsageError, flag_of
from fairseq_posenc.basics.packages import import_extra
from fairseq_posenc.encodings import ENCODINGS, PositionEncoding, all_encodings
from fairseq_posenc.encodings.base import DistanceBias
from fairseq_posenc.exchange import formats
from fairseq_posenc.exchange.exporter import CARD_FLAGS, SUBWORD_FLAGS, CheckpointExporter, Exported
from fairseq_posenc.exchange.huggingface import folder as hf
from fairseq_posenc.exchange.huggingface.entries import GATED
from fairseq_posenc.exchange.huggingface.rope import reordered
from fairseq_posenc.exchange.huggingface.texts import TranslationTexts, WrittenTexts
from fairseq_posenc.exchange.native import DATA, LANGUAGES, NativeCheckpoint, read_translation
from fairseq_posenc.flags.options import SIDES
from fairseq_posenc.flags.registry import fields_of
from fairseq_posenc.models.kinds import END, PAD, TRANSLATION, Parameters, Settings

NAME = "hf-remote-code"
_TEXTS = TranslationTexts()
_MODULE = "modeling_posenc_seq2seq"
_TEMPLATE = Path(__file__).with_name("templates") / f"{_MODULE}.py.txt"
_CLASS, _CONFIG = "PosencForConditionalGeneration", "PosencSeq2SeqConfig"
_ACTIVATIONS = {
    **{name: name for name in ("relu", "gelu", "tanh", "linear")},
    **dict.fromkeys(("gelu_accurate", "gelu_fast"), "gelu_tanh"),
}
_VALUES = {
    "norm": ("layer", "rms"),
    "feed_forward": ("mlp", "glu", *GATED),
    "activation_fn": tuple(_ACTIVATIONS),
}
#: Prefixes of the names of parameters that become tables.
_POSITIONS = ("position_bias", "position_map", "embed_positions")


def encodings_with_code() -> List[str]:
    """The names of encodings that the code in an exported folder can compute."""
    return [
        name
        for name, entry in ENCODINGS.items()
        # rotations; tables or no positions; biases that depend on distances
        if name == "rotary" or entry.acts.hook == "input" or issubclass(entry.acts, DistanceBias)
    ]


class RemoteExporter(CheckpointExporter):
    """Writes a folder that contains the code of the model."""

    name = "the code in the exported folder"
    flags = (DATA, *LANGUAGES, *SUBWORD_FLAGS, *CARD_FLAGS)

    def load(self, folder: str) -> nn.Module:
        """Load a folder with its own code, without copying the code to the library's cache."""
        import_extra("transformers", "--verify")
        found = importlib.util.spec_from_file_location(
            "_exported_" + uuid.uuid4().hex, Path(folder, f"{_MODULE}.py")
        )
        assert found is not None and found.loader is not None  # the path ends in .py
        code = sys.modules[found.name] = importlib.util.module_from_spec(found)
        try:
            found.loader.exec_module(code)
            return hf.load_with(getattr(code, _CLASS), folder)
        finally:
            del sys.modules[found.name]

    def read(self, wanted: formats.Wanted) -> NativeCheckpoint:
        """See :class:`~fairseq_posenc.exchange.exporter.CheckpointExporter`."""
        return read_translation(wanted, self.name)

    def write(self, checkpoint: NativeCheckpoint, head: Optional[str], folder: str) -> Exported:
        """See :class:`~fairseq_posenc.exchange.exporter.CheckpointExporter`."""
        settings, ours = checkpoint.settings, dict(checkpoint.parameters)
        self.refuse(checkpoint.path, settings)
        texts = _TEXTS.write(checkpoint, (), True, folder)
        state: Parameters = {}
        entries = _embeddings(ours, state, texts)
        sides = {f"{side}_side": _side(checkpoint, side, ours, state) for side in SIDES}
        form = settings["feed_forward"]
        sizes = {side: len(order) for side, order in texts.orders.items()}
        config = {
            "model_type": "posenc_seq2seq",
            "architectures": [_CLASS],
            "auto_map": {
                "AutoConfig": f"{_MODULE}.{_CONFIG}",
                "AutoModelForSeq2SeqLM": f"{_MODULE}.{_CLASS}",
            },
            "vocab_size": sizes["encoder"],
            "target_vocab_size": sizes["decoder"],
            "hidden_symbols": sizes["decoder"] - texts.known["decoder"],
            **sides,
            **entries,
            "scale_embedding": not settings["no_scale_embedding"],
            "layernorm_embedding": bool(settings["layernorm_embedding"]),
            "norm": settings["norm"],
            "norm_epsilon": settings["layer_norm_eps"],
            "biased": not settings["no_bias"],
            "feed_forward": "glu" if form in GATED else form,
            "activation": GATED.get(form) or _ACTIVATIONS[settings["activation_fn"]],
            "qk_norm": bool(settings["qk_norm"]),
            **{n: settings[n] for n in ("dropout", "attention_dropout", "activation_dropout")},
            **texts.entries,
            "torch_dtype": "float32",
        }
        hf.write_weights(folder, config, {name: x.clone() for name, x in state.items()})
        code = _TEMPLATE.read_text("utf-8")
        Path(folder, f"{_MODULE}.py").write_text(code, "utf-8")
        numbers = {side: torch.arange(known) for side, known in texts.known.items()}
        foreign = hf.reference(partial(self.load, folder), self.name, numbers, 0, END)
        note = "load it with trust_remote_code=True: the code is in the folder"
        return Exported(foreign, (note, *texts.notes))

    def refuse(self, path: str, settings: Settings) -> None:
        """Refuse a model that the code cannot compute."""
        names = encodings_with_code()
        flags = [ENCODINGS.find(name).flags for name in names]
        known = {
            *formats.FROM_PARAMETERS,
            *("share_layers", "decoder_input_dim"),
            *(f.name for each in flags if each for f in fields_of(each)),
        }
        values = {**_VALUES, "decoder_output_dim": (settings["decoder_embed_dim"],)}
        expressible = formats.Expressible(self.name, known - {"rotary_value"}, values)
        formats.refuse_inexpressible(path, TRANSLATION.family, settings, expressible)
        for side in SIDES:
            flag = f"{side}_position_encoding"
            flag = flag if settings[flag] is not None else "position_encoding"
            for entry in all_encodings(settings[flag]):
                if entry.name not in names:
                    raise UsageError(
                        f"{path}: {flag_of(flag)} {settings[flag]}: {self.name} has no support "
                        f"for {entry.name}, only for {', '.join(names)}; nothing was written"
                    )


def _embeddings(ours: Parameters, state: Parameters, texts: WrittenTexts) -> Dict[str, Any]:
    """Move the embeddings and the output from *ours* to *state*; return the entries on sharing."""
    source, target = (ours.pop(f"{side}.embed_tokens.weight") for side in SIDES)
    output = ours.pop(TRANSLATION.head + "weight", target)
    one = source.shape == target.shape and torch.equal(source, target)
    tied = torch.equal(output, target)
    state["encoder.embed_tokens.weight"] = source[texts.orders["encoder"]]
    if not one:
        state["target_embedding.weight"] = target[texts.orders["decoder"]]
    if not tied:
        state["lm_head.weight"] = output[texts.orders["decoder"]]
    return {"share_embeddings": one, "share_output": tied}


def _side(
    checkpoint: NativeCheckpoint, side: str, ours: Parameters, state: Parameters
) -> Dict[str, Any]:
    """The entries of one side in config.json; its parameters move from *ours* to *state*."""
    settings, stack = checkpoint.settings, getattr(checkpoint.load(checkpoint.path, {}), side)
    attentions = [layer.self_attn for layer in stack.layers]
    heads, dim = settings[f"{side}_attention_heads"], settings[f"{side}_embed_dim"]
    found: Dict[str, Any] = {
        "layers": len(attentions),
        "dim": dim,
        "heads": heads,
        "kv_heads": getattr(attentions[0], "kv_heads", heads),  # not in fairseq's class
        "ffn_dim": settings[f"{side}_ffn_embed_dim"],
        "norm_first": bool(settings[f"{side}_normalize_before"]),
        "final_norm": stack.layer_norm is not None,
    }
    names = [name for name in ours if name.startswith(f"{side}.")]
    parts = {name.split(".", 1)[1]: ours.pop(name) for name in names}
    parts = {name: x for name, x in parts.items() if not name.startswith(_POSITIONS)}
    layers = [(each.encoding, each.number) for each in attentions if hasattr(each, "encoding")]
    rotations = [encoding.rotation(number) for encoding, number in layers]
    by_base = {each.base: each for each in rotations if each is not None}
    if by_base:
        first = next(iter(by_base.values()))  # the others differ only in the base
        if first.pairing == "interleaved":
            parts = reordered(parts, "half", dim // heads, 2 * len(first.frequencies))
        numbers = {base: number for number, base in enumerate(by_base)}
        found["theta"] = [each.frequencies.tolist() for each in by_base.values()]
        found["rotations"] = [None if each is None else numbers[each.base] for each in rotations]
        found["rotation_length"] = first.temperature
    encoding = _with_bias(checkpoint.path, side, [encoding for encoding, _ in layers])
    if encoding is not None:
        reach = encoding.constant_from(stack.max_positions())
        parts["distance_bias"] = encoding.by_distance(torch.arange(-reach, reach + 1))
        found["distance_bias"] = reach
    if stack.embed_positions is not None:
        rows = stack.embed_positions(torch.full((1, stack.max_positions()), PAD + 1))[0]
        parts["embed_positions"] = rows.float()
        found["position_table"] = len(rows)
    prefix = "encoder.stack." if side == "encoder" else "decoder."
    state.update({prefix + name: value for name, value in parts.items()})
    return found


def _with_bias(path: str, side: str, encodings: List[PositionEncoding]) -> Any:
    """The encoding that all layers of a stack share, if it has a bias, or None."""
    distinct = list(dict.fromkeys(encodings))
    biased = [each for each in distinct if each.by_distance(torch.zeros(1).long()) is not None]
    if biased and len(distinct) > 1:
        raise UsageError(
            f"{path}: {flag_of('position_encoding')}: the layers of the {side} have different "
            "biases, but the exported code has one bias for all layers; nothing was written"
        )
    return biased[0] if biased else None


formats.register_format(
    NAME,
    summary="a folder of transformers with its own code: translation models, rotary ones included",
    exporter=RemoteExporter(),
)
