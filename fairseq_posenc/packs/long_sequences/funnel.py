"""The Funnel encoder: stages that halve the number of tokens, then layers for all tokens.

Funnel-Transformer, Dai, Lai, Yang, Le, arXiv 2006.03236, sections 2.2, 2.3.  Between stages,
every pair of neighbours in h is replaced by its mean, except for [CLS].  The first layer of a later
stage has pooled queries, but keys and values that are not pooled:

    h' = pool(h),    h ← LayerNorm(h' + Attention(Q = h', K = V = h))

To predict tokens, each token of the last stage, which stands for s = 2^(stages - 1) tokens, is
repeated s times and added to the output of the first stage; further layers follow.

A pooled token has the position of its first token.  [CLS] is as far from the first pooled token as
neighbouring pooled tokens are from each other, so each stage has evenly spaced positions.  Means
and keys leave out padding; a pooled token is padding if all its tokens are padding.
"""

from dataclasses import dataclass
from typing import Any, List, Optional, Tuple

import torch
from fairseq.data import Dictionary
from torch import Tensor, nn

from fairseq_posenc.attention import Batch
from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.configuration.features import (
    Completed,
    refuse_flags,
    refuse_one_input,
    register_feature,
)
from fairseq_posenc.encodings import Encoding, Places
from fairseq_posenc.flags.options import Options, option
from fairseq_posenc.flags.registry import register_replacement
from fairseq_posenc.flags.settings import setting
from fairseq_posenc.models.roberta import SentenceEncoder
from fairseq_posenc.stacks.encoder import Encoded, Requested


@dataclass
class FunnelFlags:
    """The flags of the Funnel encoder."""

    funnel_stages: Optional[str] = setting(
        None,
        "number of layers in each stage of a Funnel encoder, such as 4,4,4; between stages, all "
        "tokens except [CLS] are pooled in pairs",
        traceable=(None,),
    )
    funnel_decoder_layers: Optional[int] = setting(
        2,
        "layers after the upsampled last stage of a Funnel encoder, for predictions about "
        "each token; text classifiers leave these layers out",
        at_least=0,
        at_most=10_000,
        needs={"funnel_stages": None},
    )


def parse_stages(value: str) -> List[int]:
    """The number of layers in each stage of a Funnel encoder.

    >>> parse_stages("4,4,4")
    [4, 4, 4]

    Raises:
        UsageError: *value* is no list of two or more positive integers.
    """
    parts = [part.strip() for part in str(value).split(",")]
    if len(parts) < 2 or not all(part.isdecimal() and int(part) for part in parts):
        raise UsageError(
            f"--funnel-stages {value}: must be layer counts of two or more stages, such as 4,4,4"
        )
    return [int(part) for part in parts]


def complete_funnel(cfg: Options) -> None:
    """Set the number of layers of a Funnel encoder, in place.

    Raises:
        UsageError: ``--encoder-layers`` is a different number.
    """
    value = option(cfg, "funnel_stages")
    if value is None:
        return
    decoder = option(cfg, "funnel_decoder_layers")
    layers = sum(parse_stages(value)) + (2 if decoder is None else int(decoder))
    number = option(cfg, "encoder_layers")
    if number not in (None, layers):
        raise UsageError(
            f"--encoder-layers {number}: --funnel-stages {value} and --funnel-decoder-layers have "
            f"{layers} layers in all; drop --encoder-layers, or give {layers}"
        )
    cfg.encoder_layers = layers


def check_funnel(completed: Completed) -> None:
    """Refuse attentions, encodings and flags that do not support pooled queries."""
    cfg = completed.cfg
    if cfg.funnel_stages is None:
        return
    flag = f"--funnel-stages {cfg.funnel_stages}"
    fixed = "stages have a fixed number of layers"
    why = {
        "causal": "a pooled token mixes two tokens, and the first must not see the second",
        "untie_cls": "[CLS] is recognised by its position 0, which it has only before pooling",
        "random_positions": "the positions of pooled tokens are computed from 0, 1, 2 and so on",
        "position_ids": "the positions of pooled tokens are computed from 0, 1, 2 and so on",
        "encoder_layerdrop": fixed,
        "encoder_layers_to_keep": fixed,
        "mask_decoder_layers": "a Funnel encoder has layers of its own after its stages",
    }
    refuse_one_input(cfg, flag)
    refuse_flags(cfg, flag, why)
    for encoding in completed.patterns["encoder"].encodings:
        problem = _no_place_in_funnel(encoding, cfg)
        if problem:
            raise UsageError(
                f"{flag}: {problem}; give an encoding such as rotary, t5, alibi or transformer_xl"
            )


def _no_place_in_funnel(encoding: Encoding, cfg: Any) -> Optional[str]:
    """Why a Funnel encoder does not support an encoding, or None."""
    if encoding.content is not None and not encoding.takes_positions:
        return f"{encoding.name} depends on tokens between query and key, but pooling merges tokens"
    if encoding.input is None and not encoding.is_relative(cfg):
        return f"{encoding.name} needs each token's absolute position, but pooling merges tokens"
    values = encoding.transform.changes_values(cfg) if encoding.transform else None
    return values and f"{values} needs one position for each token, and a pooled token has several"


register_feature(
    FunnelFlags, models=["posenc_masked_lm"], complete=complete_funnel, check=check_funnel
)


def pool(x: Tensor, mask: Optional[Tensor]) -> Tuple[Tensor, Optional[Tensor]]:
    """Keep [CLS], and replace every two of the other tokens by their mean.

    >>> pool(torch.tensor([[[9.0], [1.0], [3.0], [5.0]]]), None)[0].flatten()
    tensor([9., 2., 5.])

    Args:
        x: (B, S, C), starting with [CLS].
        mask: (B, S), True at padding, or None.

    Returns:
        the pooled tokens, (B, 1 + ⌈(S - 1)/2⌉, C), and their padding mask, or None.
    """
    batch, length, channels = x.shape
    count = length // 2  # pairs; the last may be a single token
    odd = 2 * count - (length - 1)
    sizes = (batch, count, 2)
    hidden = x.new_zeros(batch, length, dtype=torch.bool) if mask is None else mask
    hidden = torch.cat((hidden[:, 1:], hidden.new_ones(batch, odd)), dim=1).view(sizes)
    rest = torch.cat((x[:, 1:], x.new_zeros(batch, odd, channels)), dim=1)
    real = (~hidden).unsqueeze(-1).to(x)
    pairs = rest.view(*sizes, channels) * real
    means = pairs.sum(dim=2) / real.sum(dim=2).clamp(min=1)
    pooled = torch.cat((x[:, :1], means), dim=1)
    return pooled, None if mask is None else torch.cat((mask[:, :1], hidden.all(dim=2)), dim=1)


def pooled_batch(
    batch: Batch, x: Tensor, apart: int, keys: Tensor, keys_apart: int, mask: Optional[Tensor]
) -> Batch:
    """The batch of a stage, with the positions that the module's docstring describes.

    Args:
        batch: the batch before pooling.
        x: pooled tokens, the queries, (B, T, C).
        apart: distance between neighbouring queries, in tokens.
        keys: input for keys and values, (B, S, C).
        keys_apart: distance between neighbouring keys, in tokens.
        mask: padding of the keys, (B, S), or None.
    """
    positions = [
        torch.arange(-1, n - 1, device=x.device).mul(distance).add(1).unsqueeze(0)
        for n, distance in ((x.size(1), apart), (keys.size(1), keys_apart))
    ]
    length = keys.size(1)
    places = Places(positions[0], positions[1], length * keys_apart + apart)
    padding = batch.padding._replace(mask=mask)
    return Batch(x, length, padding, projected=length, assigned=places)


def upsample(x: Tensor, times: int, length: int) -> Tensor:
    """Repeat every token of *x* (B, S, C) except [CLS]; the result is (B, *length*, C)."""
    rest = x[:, 1:].repeat_interleave(times, dim=1)
    return torch.cat((x[:, :1], rest[:, : length - 1]), dim=1)


@register_replacement(
    "funnel_stages",
    of=SentenceEncoder,
    no_matrix="layers of pooled tokens have attention matrices of several sizes; give a model that "
    "was trained without the flag",
)
class FunnelEncoder(SentenceEncoder):
    """Encoder of a masked language model whose stages pool the tokens.

    Arguments are those of the base class.  The layers of all stages come before the decoder layers.
    """

    def __init__(self, cfg: Options, dictionary: Dictionary, embed_tokens: nn.Embedding) -> None:
        super().__init__(cfg, dictionary, embed_tokens)
        self.stages = parse_stages(cfg.funnel_stages)

    def run_layers(self, batch: Batch, requested: Requested) -> Encoded:
        """Apply the stages, the layers after them and the last norm; texts start with [CLS].

        With ``by_token`` the output has the full length, else it is the output of the last stage.
        The states between layers differ in length.

        Raises:
            UsageError: a text is padded on the left.
        """
        x, length, mask = batch.like, batch.length, batch.padding.mask
        if batch.padding.left and mask is not None and not torch.jit.is_tracing():
            if (mask[:, 0] & ~mask.all(dim=1)).any():
                raise UsageError(
                    "--funnel-stages: a text is padded on the left, where [CLS] must be; give a "
                    "task that pads on the right"
                )
        unpooled = prepared = self.prepare(batch)
        states, layers = [x], iter(self.layers)
        for stage, count in enumerate(self.stages):
            keys: Optional[Tensor] = None
            if stage > 0:
                keys, before, (x, mask) = x, mask, pool(x, mask)
                unit = 2 ** (stage - 1)
                pooling = self.prepare(pooled_batch(batch, x, 2 * unit, keys, unit, before))
                prepared = self.prepare(pooled_batch(batch, x, 2 * unit, x, 2 * unit, mask))
            for index in range(count):
                layer: Any = next(layers)
                if keys is not None and index == 0:
                    x = layer(x, keys=keys, **pooling[layer.self_attn.kind])
                else:
                    x = layer(x, **prepared[layer.self_attn.kind])
                states.append(x)
        if requested.by_token:
            first, times = states[self.stages[0]], 2 ** (len(self.stages) - 1)
            x = first + upsample(x, times, length)
            for layer in layers:
                x = layer(x, **unpooled[layer.self_attn.kind])
                states.append(x)
        x = x if self.layer_norm is None else self.layer_norm(x)
        states = [state.transpose(0, 1) for state in states] if requested.states else []
        return Encoded(x, states)
