"""Fills CTranslate2's specifications of encoders and decoders from fairseq's modules."""

import inspect
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Set, Tuple

import numpy as np
import torch
from torch import Tensor, nn

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.ctranslate2.positions import ACTIVATIONS, Positions, positions_of
from fairseq_posenc.flags.options import Layer

if TYPE_CHECKING:
    from ctranslate2.specs.model_spec import LayerSpec


class Parameters:
    """Copies parameters in float32, and records which ones were copied.

    If a parameter is not copied, the exported model does not compute the same as the original.
    """

    def __init__(self) -> None:
        self._copied: Set[int] = set()
        self.epsilons: Set[float] = set()

    def copy(self, parameter: Tensor) -> np.ndarray:
        """A contiguous copy of *parameter*."""
        self.count(parameter)
        return parameter.float().contiguous().numpy().copy()

    def count(self, *parameters: Tensor) -> None:
        """Record *parameters* as copied, because an array made from them has been copied."""
        self._copied.update(map(id, parameters))

    def left(self, model: nn.Module) -> List[str]:
        """Names of the parameters of *model* that were not copied."""
        return [name for name, value in model.named_parameters() if id(value) not in self._copied]


def encoder_spec(
    module: Layer, activation: str, parameters: Parameters
) -> Tuple[Any, Optional[int]]:
    """Make and fill the specification of an encoder.

    Returns:
        the specification, and the length in tokens from which positions are approximate, or None.
    """
    embeddings = [module.embed_tokens]
    if getattr(module, "embed_segments", None) is not None:
        embeddings.append(module.embed_segments)
    arguments = {
        **_shape(module, activation),
        "num_source_embeddings": len(embeddings),
        "embeddings_merge": _specs().common_spec.EmbeddingsMerge.ADD,
    }
    spec = specification(_specs().transformer_spec.TransformerEncoderSpec, arguments)
    for each, embedding in zip(spec.embeddings, embeddings):
        each.weight = parameters.copy(embedding.weight)
    return spec, _fill_stack(spec, module, parameters)


def decoder_spec(
    module: Layer, activation: str, parameters: Parameters
) -> Tuple[Any, Optional[int]]:
    """Make and fill the specification of a decoder; see :func:`encoder_spec`."""
    alibi = native_alibi(module)
    arguments = {
        **_shape(module, activation),
        "with_encoder_attention": module.layers[0].encoder_attn is not None,
        "alibi": alibi,
    }
    spec = specification(_specs().transformer_spec.TransformerDecoderSpec, arguments)
    spec.embeddings.weight = parameters.copy(module.embed_tokens.weight)
    exact_below = _fill_stack(spec, module, parameters, alibi)
    for layer, each in zip(spec.layer, module.layers):
        if each.encoder_attn is not None:
            source = each.encoder_attn
            groups = ([source.q_proj], [source.k_proj, source.v_proj], [source.out_proj])
            for linear, projections in zip(layer.attention.linear, groups):
                _fill_linear(linear, projections, parameters)
            norm = each.encoder_attn_layer_norm
            _fill_norm(layer.attention.layer_norm, norm, each.embed_dim, parameters)
    for name in ("project_in", "project_out"):  # the constructor adds both or none
        projection = getattr(module, f"{name}_dim")
        if projection is not None:
            vars(spec)[name] = _specs().common_spec.LinearSpec()
            _fill_linear(vars(spec)[name], [projection], parameters)
    _fill_linear(spec.projection, [module.output_projection], parameters)
    return spec, exact_below


def native_alibi(module: Layer) -> bool:
    """True if ALiBi is the only encoding of all layers; then the engine's own ALiBi is used."""
    encodings = [getattr(each.self_attn, "encoding", None) for each in module.layers]
    return all(each is not None and each.name == "alibi" for each in encodings)


def specification(kind: Callable[..., Any], arguments: Dict[str, Any]) -> Any:
    """Make a specification with those arguments that the installed engine accepts.

    Args:
        arguments: arguments for the newest engine; those that are None or False are not needed.

    Raises:
        UsageError: the model needs an argument that the installed engine does not accept.
    """
    known = inspect.signature(vars(kind)["__init__"]).parameters
    needed = [n for n in sorted(set(arguments) - set(known)) if arguments[n] not in (None, False)]
    if needed:
        import ctranslate2

        raise UsageError(
            f"ctranslate2 {ctranslate2.__version__} has no {', '.join(needed)} in its "
            f"{kind.__name__}, which this model needs: install a newer version"
        )
    return kind(**{name: value for name, value in arguments.items() if name in known})


def _specs() -> Any:
    import ctranslate2

    return ctranslate2.specs


def _shape(module: Layer, activation: str) -> Any:
    """The arguments that specifications of encoders and of decoders have in common."""
    first = module.layers[0]
    return {
        "num_layers": len(module.layers),
        "num_heads": first.self_attn.num_heads,
        "num_heads_kv": _kv_heads(first.self_attn),
        "pre_norm": first.normalize_before,
        "no_final_norm": module.layer_norm is None,
        "activation": _specs().common_spec.Activation[ACTIVATIONS[activation]],
        "layernorm_embedding": module.layernorm_embedding is not None,
        "ffn_glu": hasattr(first, "fc_gate"),
        "rms_norm": _is_rms(module),
    }


def _kv_heads(attention: Layer) -> Optional[int]:
    """The number of key heads if several query heads share a key head, else None."""
    heads = getattr(attention, "kv_heads", attention.num_heads)  # not in fairseq's class
    return None if heads == attention.num_heads else int(heads)


def _is_rms(module: Layer) -> bool:
    """True if the norms are RMS norms, which have no parameters here."""
    return getattr(module.layers[0].final_layer_norm, "weight", None) is None


def _fill_stack(
    spec: "LayerSpec", module: Layer, parameters: Parameters, alibi: bool = False
) -> Optional[int]:
    """Fill what encoders and decoders have in common: positions, norms, self-attention, FFN."""
    spec.scale_embeddings = float(module.embed_scale)
    table = module.embed_positions
    if table is not None:
        parameters.count(*table.parameters())
        tokens = torch.full((1, module.max_positions()), module.padding_idx + 1)
        rows = table(tokens)[0]  # (L, C), for any kind of table
        spec.position_encodings.encodings = rows.float().contiguous().numpy().copy()
    size, rms = module.layers[0].embed_dim, _is_rms(module)
    limits = []
    for name in ("layer_norm", "layernorm_embedding"):
        if getattr(module, name) is not None:
            _fill_norm(getattr(spec, name), getattr(module, name), size, parameters)
    for layer, each in zip(spec.layer, module.layers):
        positions = Positions() if alibi else positions_of(each.self_attn, table is not None)
        limits.append(positions.exact_below)
        layer.self_attention = _self_attention(each.self_attn, positions, rms, parameters)
        _fill_norm(layer.self_attention.layer_norm, each.self_attn_layer_norm, size, parameters)
        _fill_norm(layer.ffn.layer_norm, each.final_layer_norm, size, parameters)
        _fill_linear(layer.ffn.linear_0, [each.fc1], parameters)
        _fill_linear(layer.ffn.linear_1, [each.fc2], parameters)
        if hasattr(each, "fc_gate"):
            _fill_linear(layer.ffn.linear_0_noact, [each.fc_gate], parameters)
    for encoding in getattr(module, "encodings", {}).values():
        parameters.count(*encoding.parameters())
    return min(filter(None, limits), default=None)


def _self_attention(
    attention: Layer, positions: Positions, rms: bool, parameters: Parameters
) -> Any:
    """The specification of a self-attention, filled except for its norm."""
    norms: List[Any] = [getattr(attention, name, None) for name in ("q_norm", "k_norm")]
    normed = norms[0] is not None
    arguments = {
        **{"self_attention": True, "rms_norm": rms, "num_heads_kv": _kv_heads(attention)},
        **{"qk_norm": normed, "qk_norm_rms": normed and rms},
        **positions.arguments,
    }
    spec = specification(_specs().attention_spec.MultiHeadAttentionSpec, arguments)
    for name, tensor in positions.tensors.items():
        setattr(spec, name, tensor)
    projections = [attention.q_proj, attention.k_proj, attention.v_proj]
    _fill_linear(spec.linear[0], projections, parameters)
    factors = np.ones(attention.head_dim, np.float32)
    factors[: positions.rotated] = positions.temperature
    if normed:
        for each, norm in zip((spec.q_norm, spec.k_norm), norms):
            _fill_norm(each, norm, attention.head_dim, parameters)
            _scale(each, ("gamma", "beta"), factors)
    else:
        rows = len(attention.q_proj.weight) + len(attention.k_proj.weight)
        _scale(spec.linear[0], ("weight", "bias"), np.tile(factors, rows // len(factors)))
    _fill_linear(spec.linear[1], [attention.out_proj], parameters)
    return spec


def _scale(spec: "LayerSpec", names: Tuple[str, ...], factors: np.ndarray) -> None:
    """Multiply the first rows of the arrays *names* of a specification by *factors*, in place."""
    for name in names:
        array = getattr(spec, name, None)
        if isinstance(array, np.ndarray):  # the engine has a marker for an absent bias
            array[: len(factors)] *= factors.reshape(-1, *[1] * (array.ndim - 1))


def _fill_linear(spec: "LayerSpec", projections: List[Any], parameters: Parameters) -> None:
    """Fill a linear layer with the rows of one or several projections of the same input."""
    spec.weight = np.concatenate([parameters.copy(each.weight) for each in projections])
    if any(each.bias is not None for each in projections):
        biases = [torch.zeros(len(p.weight)) if p.bias is None else p.bias for p in projections]
        spec.bias = np.concatenate([parameters.copy(bias) for bias in biases])


def _fill_norm(spec: "LayerSpec", norm: Layer, size: int, parameters: Parameters) -> None:
    """Fill a norm from a layer norm, or from an RMS norm without parameters."""
    parameters.epsilons.add(float(norm.eps))
    weight: Optional[Tensor] = getattr(norm, "weight", None)
    spec.gamma = np.ones(size, np.float32) if weight is None else parameters.copy(weight)
    if hasattr(spec, "beta"):
        spec.beta = parameters.copy(norm.bias)
