"""The classes of transformers for translation with the layers of BART.

Marian's own sinusoids, norms last                                MarianMTModel
learned positions, norm of the embeddings, norms last             BartForConditionalGeneration
the same with norms first                                         MBartForConditionalGeneration
sinusoidal positions, norms first                                 M2M100ForConditionalGeneration

T5's is in :mod:`~fairseq_posenc.exchange.huggingface.t5`.
"""

from types import MappingProxyType
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

import torch
from fairseq.modules import SinusoidalPositionalEmbedding
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.exchange.config import Config
from fairseq_posenc.exchange.huggingface import table as t
from fairseq_posenc.exchange.huggingface.convert import register_class
from fairseq_posenc.exchange.huggingface.entries import ACTIVATIONS, activation, rate
from fairseq_posenc.exchange.huggingface.tensors import positions, put_positions
from fairseq_posenc.exchange.reader import ForeignParameters, Reader
from fairseq_posenc.flags.options import SIDES
from fairseq_posenc.models.kinds import PAD, TRANSLATION, Parameters, Settings

#: The settings of the longest text, and of the channels, which are the same on both sides.
LENGTHS = ("max_source_positions", "max_target_positions")
WIDTH = ("encoder_embed_dim", "decoder_embed_dim", "decoder_input_dim", "decoder_output_dim")
NORMS_FIRST: Settings = {f"{side}_normalize_before": True for side in SIDES}
#: Modules of the layers, which have our names.
_SELF = t.same(t.Q, t.K, t.V, t.OUT, t.NORM_1)
_CROSS = t.same(t.CROSS_Q, t.CROSS_K, t.CROSS_V, t.CROSS_OUT, t.CROSS_NORM)
_LAST = t.same(t.FC1, t.FC2, t.NORM_2)


def longest(theirs: str) -> t.Group:
    """The entry of the longest text, which is the longer of both sides."""
    return t.Group(
        theirs,
        LENGTHS,
        lambda config, known: dict.fromkeys(LENGTHS, config.length(theirs, 1024)),
        lambda settings, path: {theirs: max(settings[name] for name in LENGTHS)},
    )


def marian_sinusoids(rows: int, channels: int) -> Tensor:
    """sin(i / 10000^(2k/C)) for all k, then the cosines, (rows, C); i from 0."""
    even = torch.arange(0, channels, 2, dtype=torch.float64)
    angles = torch.arange(rows, dtype=torch.float64)[:, None] / 10000.0 ** (even / channels)
    return torch.cat((angles.sin(), angles.cos()), dim=1).float()[:, :channels]


def _sinusoids(rows: int, channels: int) -> Tensor:
    """fairseq's sinusoids of the first positions, (rows, C)."""
    table: Tensor = SinusoidalPositionalEmbedding.get_embedding(PAD + 1 + rows, channels, PAD)
    return table[PAD + 1 :]


#: The rates of dropout, by the names that both sides of a conversion have.
RATES = (
    *("dropout", "attention_dropout", "activation_dropout"),
    *(f"{side}_layerdrop" for side in SIDES),
)


class _Positions:
    """The tables of positions of both sides, learned or sinusoidal.

    Args:
        first: the row of the first position.
        computed: makes the tables (rows, C) of a class that computes them anew in place of saving
            them.
    """

    def __init__(self, first: int, computed: Optional[Callable[[int, int], Tensor]] = None) -> None:
        self.first, self.computed = first, computed

    def read(self, reader: Reader, settings: Settings, config: Config) -> List[str]:
        """Move the tables, set the encoding, and return notes."""
        rows, channels = settings["max_source_positions"], settings["encoder_embed_dim"]
        usual = _sinusoids(rows, channels)
        tables = {
            side: self.computed(rows, channels)
            if self.computed is not None and _table_of(side) not in reader
            else positions(reader, _table_of(side), self.first, rows)
            for side in SIDES
        }
        settings["position_encoding"] = "sinusoidal"
        if all(x.shape == usual.shape and _close(x, usual, 1e-6) for x in tables.values()):
            return []
        settings["position_encoding"] = "learned"
        for side, table in tables.items():
            put_positions(reader, table, f"{side}.", _table_of(side))
        note = "its positions are not fairseq's sinusoids: they become learned tables"
        return [] if self.computed is None else [note]

    def write(
        self,
        state: ForeignParameters,
        ours: Parameters,
        settings: Settings,
        entries: Dict[str, Any],
    ) -> List[str]:
        """Write the tables, and return notes."""
        rows, channels = max(settings[name] for name in LENGTHS), settings["encoder_embed_dim"]
        notes = []
        for side in SIDES:
            encoding = settings[f"{side}_position_encoding"] or settings["position_encoding"]
            known = ours.pop(
                f"{side}.embed_positions.weight", torch.zeros(PAD + 1 + rows, channels)
            )
            known = known[PAD + 1 :][:rows]
            if len(known) < rows:
                notes.append(
                    f"the {side} knows {len(known)} positions; behind them its table is zero"
                )
            table = torch.cat((known, torch.zeros(rows - len(known), channels)))
            if encoding == "sinusoidal":
                table = _sinusoids(rows, channels)
            # the class would lose another table
            if self.computed and not _close(table, self.computed(rows, channels), 1e-5):
                raise UsageError(
                    f"--position-encoding {encoding}: the positions of the {side} are not those "
                    "that MarianMTModel of transformers computes, and its save_pretrained leaves "
                    "others out; hf-remote-code holds them; nothing was written"
                )
            state[_table_of(side)] = torch.cat((torch.zeros(self.first, channels), table))
        return notes


def _close(one: Tensor, other: Tensor, bound: float) -> bool:
    return torch.allclose(one, other, rtol=0, atol=bound)


def _table_of(side: str) -> str:
    return f"model.{side}.embed_positions.weight"


def _stack(side: str, *norms: str) -> t.Stack:
    """The encoder or decoder, with the norms outside of its layers."""
    cross = _CROSS if side == "decoder" else ()
    outside = tuple(t.Joint(f"model.{side}.{name}", (name,)) for name in norms)
    layers, embedding = f"model.{side}.layers.{{}}.", f"model.{side}.embed_tokens.weight"
    return t.Stack(f"{side}.", layers, (*_SELF, *cross, *_LAST), embedding, outside)


def _entries(
    *more: t.Group,
    act: str = "gelu",
    scaled: bool = False,
    rates: Mapping[str, float] = MappingProxyType({"dropout": 0.1}),
) -> Tuple[t.Group, ...]:
    """The entries of BART's classes.

    Args:
        act: the activation where config.json does not say it.
        scaled: whether embeddings are multiplied by √C where it does not say that.
        rates: the rates of dropout that are not 0 where it does not say them.
    """
    sizes = {"layers": "layers", "attention_heads": "attention_heads", "ffn_dim": "ffn_embed_dim"}
    return (
        t.fixed("is_encoder_decoder", True),
        t.entry("d_model", WIDTH),
        *(t.entry(f"{s}_{name}", (f"{s}_{sizes[name]}",)) for s in SIDES for name in sizes),
        activation("activation_function", usual=act),
        t.entry(
            "scale_embedding",
            ("no_scale_embedding",),
            Config.flag,
            scaled,
            lambda flag: not flag,
            lambda setting: not setting,
        ),
        longest("max_position_embeddings"),
        *(rate(name, name, usual=rates.get(name, 0.0)) for name in RATES),
        *more,
    )


def _of_old_files(first: bool, normed: bool) -> Iterator[t.Group]:
    """What old files of BART's class say of the norms."""
    yield t.fixed("normalize_before", first, written=False)
    yield t.fixed("add_final_layer_norm", first, written=False)
    yield t.fixed("normalize_embedding", normed, written=False)


def _refuse_padding(config: Config, known: Settings) -> Settings:
    """Refuse translations that begin with padding, which has no position in the class."""
    if config.get("decoder_start_token_id", None) == PAD:
        raise UsageError(
            f"{config.path}: decoder_start_token_id is {PAD}, that of padding, which has no "
            "position in this class"
        )
    return {}


MARIAN = t.TransformersClass(
    "marian",
    {"MarianMTModel": t.Architecture()},
    TRANSLATION,
    stacks=(_stack("encoder"), _stack("decoder")),
    entries=_entries(*_of_old_files(False, False)),
    always={},
    values={"position_encoding": ("sinusoidal", "learned", "none"), "activation_fn": ACTIVATIONS},
    any=("no_bias",),
    aliases={
        "hidden_size": "d_model",
        "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "encoder_attention_heads",
    },
    output_biases=("final_logits_bias",),
    shared="model.shared.weight",
    two_embeddings=True,
    start="<pad>",
    computed=("final_logits_bias", *map(_table_of, SIDES)),
    after_reading=_Positions(0, marian_sinusoids).read,
    before_writing=_Positions(0, marian_sinusoids).write,
)
BART = MARIAN._replace(
    model_type="bart",
    architectures={"BartForConditionalGeneration": t.Architecture()},
    stacks=tuple(_stack(side, "layernorm_embedding") for side in SIDES),
    entries=_entries(*_of_old_files(False, True)),
    always={"layernorm_embedding": True},
    two_embeddings=False,
    start="</s>",
    after_reading=_Positions(2).read,
    before_writing=_Positions(2).write,
)
MBART = BART._replace(
    model_type="mbart",
    architectures={"MBartForConditionalGeneration": t.Architecture()},
    stacks=tuple(_stack(side, "layernorm_embedding", t.LAST_NORM) for side in SIDES),
    entries=_entries(*_of_old_files(True, True)),
    always={**BART.always, **NORMS_FIRST},
)
M2M100 = MBART._replace(
    model_type="m2m_100",
    architectures={"M2M100ForConditionalGeneration": t.Architecture()},
    stacks=tuple(_stack(side, t.LAST_NORM) for side in SIDES),
    # its first position follows the number of padding, which has none itself
    entries=_entries(
        t.fixed("pad_token_id", PAD, written=False),
        t.Group("decoder_start_token_id", (), _refuse_padding, lambda settings, path: {}),
        act="relu",
        scaled=True,
        rates={**dict.fromkeys(RATES[:2], 0.1), **dict.fromkeys(RATES[3:], 0.05)},
    ),
    always={**NORMS_FIRST, "position_encoding": "sinusoidal"},
    values={"activation_fn": ACTIVATIONS},
    output_biases=(),
    after_reading=t.no_hook,
    before_writing=t.no_hook,
)
for _name, _table in (
    ("hf-marian", MARIAN),
    ("hf-bart", BART),
    ("hf-mbart", MBART),
    ("hf-m2m100", M2M100),
):
    register_class(_name, _table)
