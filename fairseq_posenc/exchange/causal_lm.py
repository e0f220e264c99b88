"""Language models as native classes of transformers, without code of this plug-in.

    rotary, RMS norms, gated feed-forward, grouped queries     LlamaForCausalLM
    rotary, layer norms, biases                                GPTNeoXForCausalLM
    ALiBi, layer norms, biases, norm of the embeddings         BloomForCausalLM
    learned positions, layer norms, biases                     GPT2LMHeadModel

Symbols keep the numbers of dict.txt.  fairseq multiplies embeddings by √C where the classes do not:
the factor becomes part of the written embeddings, which are then apart from the output weights.
Pairs of rotated channels are written as halves (i, i + D/2); reordering the rows of queries and
keys alike leaves their products unchanged.
"""

import math
from typing import Any, Callable, Collection, Dict, Mapping, NamedTuple, Optional

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange import causal_names as names
from fairseq_posenc.exchange import huggingface as hf
from fairseq_posenc.exchange.causal_names import Names
from fairseq_posenc.exchange.formats import (
    Expressible,
    ForeignModel,
    Logits,
    refuse_inexpressible,
    register_format,
)
from fairseq_posenc.exchange.kinds import CAUSAL, FOLLOWING, PAD, Settings
from fairseq_posenc.exchange.native import NativeCheckpoint
from fairseq_posenc.exchange.rope_entries import rope_entries
from fairseq_posenc.exchange.symbols import write_symbols
from fairseq_posenc.exchange.transfer import CheckpointExporter, Exported

DECODER = CAUSAL.stack
#: Settings of any value: they are read, follow from the parameters, or matter in training alone.
#: Those of rotary have an effect on rotary models alone, whose classes read them.
_READ = (
    *("decoder_layers", "decoder_embed_dim", "decoder_ffn_embed_dim", "decoder_attention_heads"),
    *("decoder_input_dim", "decoder_output_dim", "share_decoder_input_output_embed"),
    *("no_scale_embedding", "layer_norm_eps", "max_target_positions", "decoder_learned_pos"),
    *("rotary_base", "rotary_pairing", "rotary_scaling", "rotary_scaling_factor"),
    *("rotary_original_length", "rotary_factors", *FOLLOWING),
)
_GATED = {"swiglu": "silu", "geglu": "gelu"}
#: Lines of dict.txt have these before them.
_BEGINNING = 2  # </s>, which fairseq's language models begin a text with


class CausalClass(NamedTuple):
    """A class of transformers for language models.

    Args:
        architecture: its name.
        model_type: its name in config.json.
        names: where its parameters are.
        read: settings of any value that it has, beside sizes.
        values: other settings, with the values that it has; of the rest, the defaults.
        entries: its entries of config.json, from complete settings, the rotated channels of a head
            and the path of the checkpoint.
    """

    architecture: str
    model_type: str
    names: Names
    read: Collection[str]
    values: Mapping[str, Collection[Any]]
    entries: Callable[[Settings, int, str], Dict[str, Any]]


def _llama_entries(settings: Settings, dim: int, path: str) -> Dict[str, Any]:
    form, bias = settings["feed_forward"], not settings["no_bias"]
    heads = settings["decoder_attention_heads"]
    return {
        "num_hidden_layers": settings["decoder_layers"],
        "hidden_size": settings["decoder_embed_dim"],
        "intermediate_size": settings["decoder_ffn_embed_dim"],
        "num_attention_heads": heads,
        "num_key_value_heads": settings["kv_heads"] or heads,
        "head_dim": settings["decoder_embed_dim"] // heads,
        "hidden_act": _GATED.get(form) or hf.activation_for(settings["activation_fn"], path),
        "rms_norm_eps": settings["layer_norm_eps"],
        "attention_bias": bias,
        "mlp_bias": bias,
        **rope_entries(settings, dim, path),
    }


def _neox_entries(settings: Settings, dim: int, path: str) -> Dict[str, Any]:
    rope = rope_entries(settings, dim, path)
    return {
        "num_hidden_layers": settings["decoder_layers"],
        "hidden_size": settings["decoder_embed_dim"],
        "intermediate_size": settings["decoder_ffn_embed_dim"],
        "num_attention_heads": settings["decoder_attention_heads"],
        "hidden_act": hf.activation_for(settings["activation_fn"], path),
        "layer_norm_eps": settings["layer_norm_eps"],
        "use_parallel_residual": False,
        "attention_bias": True,
        **rope,
        "rotary_emb_base": rope["rope_theta"],
        "rotary_pct": settings["rotary_fraction"],
    }


def _bloom_entries(settings: Settings, dim: int, path: str) -> Dict[str, Any]:
    if settings["decoder_ffn_embed_dim"] != 4 * settings["decoder_embed_dim"]:
        raise UsageError(
            f"{path}: --decoder-ffn-embed-dim {settings['decoder_ffn_embed_dim']}: Bloom's is four "
            f"times --decoder-embed-dim {settings['decoder_embed_dim']}"
        )
    return {
        "n_layer": settings["decoder_layers"],
        "hidden_size": settings["decoder_embed_dim"],
        "n_head": settings["decoder_attention_heads"],
        "layer_norm_epsilon": settings["layer_norm_eps"],
    }


def _gpt2_entries(settings: Settings, dim: int, path: str) -> Dict[str, Any]:
    return {
        "n_layer": settings["decoder_layers"],
        "n_embd": settings["decoder_embed_dim"],
        "n_inner": settings["decoder_ffn_embed_dim"],
        "n_head": settings["decoder_attention_heads"],
        "n_positions": settings["max_target_positions"],
        "activation_function": hf.activation_for(settings["activation_fn"], path),
        "layer_norm_epsilon": settings["layer_norm_eps"],
    }


_PRE_NORM = {"decoder_normalize_before": (True,)}
CLASSES = {
    "hf-llama": CausalClass(
        "LlamaForCausalLM",
        "llama",
        names.LLAMA,
        ("no_bias", "kv_heads", "activation_fn"),
        {
            **_PRE_NORM,
            "position_encoding": ("rotary",),
            "norm": ("rms",),
            "feed_forward": (*_GATED, "glu"),
        },
        _llama_entries,
    ),
    "hf-gpt-neox": CausalClass(
        "GPTNeoXForCausalLM",
        "gpt_neox",
        names.GPT_NEOX,
        ("rotary_fraction", "activation_fn"),
        {**_PRE_NORM, "position_encoding": ("rotary",)},
        _neox_entries,
    ),
    "hf-bloom": CausalClass(
        "BloomForCausalLM",
        "bloom",
        names.BLOOM,
        (),
        {
            **_PRE_NORM,
            "position_encoding": ("alibi",),
            "activation_fn": ("gelu_accurate", "gelu_fast"),
            "layernorm_embedding": (True,),
        },
        _bloom_entries,
    ),
    "hf-gpt2": CausalClass(
        "GPT2LMHeadModel",
        "gpt2",
        names.GPT2,
        ("activation_fn",),
        {**_PRE_NORM, "position_encoding": ("learned",)},
        _gpt2_entries,
    ),
}


class CausalExporter(CheckpointExporter):
    """Writes a folder that a class of transformers loads.

    Args:
        target: the class.
    """

    flags = ("vocab",)

    def __init__(self, target: CausalClass) -> None:
        self.target = target

    def write(self, checkpoint: NativeCheckpoint, head: Optional[str], folder: str) -> Exported:
        """See :class:`~fairseq_posenc.exchange.transfer.CheckpointExporter`."""
        target, settings, path = self.target, checkpoint.settings, checkpoint.path
        if checkpoint.kind is not CAUSAL:
            raise UsageError(
                f"{path}: is {checkpoint.kind.name}; {target.architecture} is for language models"
            )
        expressible = Expressible(
            f"{target.architecture} of transformers", (*_READ, *target.read), target.values
        )
        refuse_inexpressible(path, CAUSAL.family, settings, expressible)
        size = settings["decoder_embed_dim"] // settings["decoder_attention_heads"]
        dim = int(size * settings["rotary_fraction"])
        state = foreign_parameters(checkpoint, target, dim)
        entries = {
            "model_type": target.model_type,
            "architectures": [target.architecture],
            **target.entries(settings, dim, path),
            "max_position_embeddings": settings["max_target_positions"],
            "tie_word_embeddings": target.names.output not in state,
            "vocab_size": len(checkpoint.symbols),
            "pad_token_id": PAD,
            "bos_token_id": _BEGINNING,
            "eos_token_id": checkpoint.symbols.index("</s>"),
            "torch_dtype": "float32",
        }
        hf.write_weights(folder, entries, state)
        write_symbols(folder, checkpoint.symbols, settings["max_target_positions"])
        foreign = ForeignModel(
            reference(folder, target.architecture), f"{target.architecture} of transformers"
        )
        note = "its tokenizer splits text at spaces, into symbols of dict.txt, as fairseq does"
        return Exported(foreign, (note,))


def foreign_parameters(
    checkpoint: NativeCheckpoint, target: CausalClass, dim: int
) -> Dict[str, Tensor]:
    """The parameters of a language model by their names in a class.

    Args:
        dim: rotated channels of a head.

    Raises:
        UsageError: the class lacks one of them.
    """
    settings, ours, theirs = checkpoint.settings, dict(checkpoint.parameters), target.names
    heads, channels = settings["decoder_attention_heads"], settings["decoder_embed_dim"]
    state: Dict[str, Tensor] = {}
    if settings["position_encoding"] == "rotary" and settings["rotary_pairing"] == "interleaved":
        for name in [name for name in ours if ".q_proj." in name or ".k_proj." in name]:
            ours[name] = interleaved_to_half(ours[name], channels // heads, dim)
    for number in range(settings["decoder_layers"]):
        prefix = f"{DECODER}layers.{number}."
        for module in theirs.modules:
            for part in ("weight", "bias"):
                found = [ours.pop(f"{prefix}{name}.{part}", None) for name in module.ours]
                present = [x for x in found if x is not None]
                name = f"{theirs.layer.format(number)}{module.theirs}.{part}"
                if present:
                    state[name] = module.layout.join(present, heads)
                elif part == "weight":
                    state[name] = torch.ones(channels)  # the gain of an RMS norm, which has none
    embedding, output = ours.pop(CAUSAL.embedding), ours.pop(CAUSAL.head + "weight", None)
    scale = 1.0 if settings["no_scale_embedding"] else math.sqrt(channels)
    state[theirs.embedding] = embedding * scale
    output = embedding if output is None else output
    if not torch.equal(state[theirs.embedding], output):
        state[theirs.output] = output
    norms = {theirs.final_norm: "layer_norm", theirs.embedding_norm: "layernorm_embedding"}
    for name, mine in norms.items():
        for part in ("weight", "bias"):
            x = ours.pop(f"{DECODER}{mine}.{part}", None)
            if x is not None:
                state[f"{name}.{part}"] = x
    state.setdefault(theirs.final_norm + ".weight", torch.ones(channels))
    if theirs.table:  # rows of fairseq's table begin behind the number of the padding symbol
        state[theirs.table] = ours.pop(f"{DECODER}embed_positions.weight")[PAD + 1 :]
    if ours:
        raise UsageError(
            f"{checkpoint.path}: {target.architecture} has no counterpart of {next(iter(ours))}"
        )
    return state


def interleaved_to_half(rows: Tensor, head_dim: int, dim: int) -> Tensor:
    """Reorder the first channels of every head: neighbours become i and i + dim/2.

    Args:
        rows: (H·D, …), the weight or bias of a projection.
        head_dim: D.
        dim: rotated channels.
    """
    heads = rows.view(-1, head_dim, *rows.shape[1:])
    rotated, rest = heads[:, :dim], heads[:, dim:]
    return torch.cat((rotated[:, 0::2], rotated[:, 1::2], rest), dim=1).reshape(rows.shape)


def reference(path: str, architecture: str) -> Logits:
    """A function for the logits of a folder, computed by transformers."""

    def logits(tokens: Tensor, segments: Tensor) -> Tensor:
        model: Any = hf.load_model(path, architecture)
        with torch.no_grad():
            return model(input_ids=tokens, attention_mask=tokens.ne(PAD).long()).logits

    return logits


for _name, _class in CLASSES.items():
    register_format(
        _name,
        summary=f"a folder of transformers' {_class.architecture}",
        exporter=CausalExporter(_class),
    )
