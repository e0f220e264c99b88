"""The parameters of a translation model by their names in a class of transformers.

fairseq's tables of positions begin behind the number of the padding symbol, those of the classes
elsewhere or nowhere.  T5 multiplies the states by 1/√C before a tied output, and fairseq the
embeddings by √C, which is the same for an embedding of √C times the size.
"""

import math
from typing import Dict, List, Tuple

import torch
from torch import Tensor

from fairseq_posenc.basics.errors import UsageError
from fairseq_posenc.checkpoints.loader import Loaded
from fairseq_posenc.exchange.huggingface.joints import extended, write_layers
from fairseq_posenc.exchange.huggingface.seq2seq.classes import Seq2SeqClass
from fairseq_posenc.exchange.huggingface.tokenizers.symbols import HIDDEN
from fairseq_posenc.flags.options import SIDES
from fairseq_posenc.models.kinds import COPIES, PAD, Parameters, Settings

EMBEDDINGS = {side: f"{side}.embed_tokens.weight" for side in SIDES}
OUTPUT = "decoder.output_projection.weight"
TABLE = "{}.embed_positions.weight"
BIAS_OF_T5 = "{}.position_bias.t5.table.weight"
#: Ends of the names of buffers.
_BUFFERS = (".version", "._float_tensor")


def own_parameters(loaded: Loaded) -> Parameters:
    """The parameters of a loaded model by our names, in float32."""
    return {
        name: value.float()
        for name, value in loaded.model.state_dict().items()
        if not name.endswith(_BUFFERS) and not COPIES.search(name)
    }


def written(
    loaded: Loaded, target: Seq2SeqClass, settings: Settings, hidden: Dict[str, int]
) -> Tuple[Dict[str, Tensor], List[str]]:
    """The parameters by their names in a class, and notes.

    Args:
        loaded: the model, of this plug-in or of fairseq.
        settings: its settings, complete.
        hidden: by side, the number of symbols behind those of the dictionary, which stand for
            ``<unk>`` and are never produced.

    Raises:
        UsageError: the class lacks one of the parameters.
    """
    ours = own_parameters(loaded)
    channels = settings["encoder_embed_dim"]
    state: Dict[str, Tensor] = {}
    for side in SIDES:
        heads, layers = settings[f"{side}_attention_heads"], settings[f"{side}_layers"]
        names = target.names(side, settings)
        found, gains = write_layers(ours, names, f"{side}.", layers, heads)
        found.update({name: torch.ones(channels) for name in gains})  # RMS norms have gains alone
        for name in [n for n in found if target.biased and n.endswith(".weight")]:
            found.setdefault(name[: -len("weight")] + "bias", torch.zeros(len(found[name])))
        state.update(found)
    for mine, theirs in target.norms.items():
        for part, usual in (("weight", torch.ones), ("bias", torch.zeros)):
            given = ours.pop(f"{mine}.{part}", None)
            if given is not None:
                state[f"{theirs}.{part}"] = given
            elif part == "weight" or not target.gainless:
                state[f"{theirs}.{part}"] = usual(channels)
    notes = _write_tables(ours, state, loaded, target, settings)
    _write_embeddings(ours, state, target, settings, hidden)
    if ours:
        raise UsageError(
            f"{loaded.path}: {target.architecture} has no counterpart of {next(iter(ours))}"
        )
    return state, notes


def _write_tables(
    ours: Parameters,
    state: Dict[str, Tensor],
    loaded: Loaded,
    target: Seq2SeqClass,
    settings: Settings,
) -> List[str]:
    """Move what the class keeps of positions, and return notes."""
    limits = {side: settings[f"max_{name}_positions"] for side, name in _SIDE_NAMES.items()}
    rows, channels, notes = max(limits.values()), settings["encoder_embed_dim"], []
    for side, theirs in target.tables.items():
        bias = ours.pop(BIAS_OF_T5.format(side), None)
        if bias is not None:
            state[theirs] = bias
            continue
        table = torch.zeros(target.offset + rows, channels)
        module = getattr(getattr(loaded.model, side), "embed_positions", None)
        if module is not None:
            known = ours.pop(TABLE.format(side), None)
            length = rows if known is None else min(rows, len(known) - PAD - 1)
            text = torch.full((1, length), PAD + 1)  # the modules take tokens
            table[target.offset : target.offset + length] = module(text)[0].float()
            if length < rows:
                notes.append(f"the {side} knows {length} positions; behind them its table is zero")
        if target.computed is not None:
            _refuse_other(table, target.computed(rows, channels), side, loaded.path, target)
        state[theirs] = table
    return notes


def _refuse_other(table: Tensor, own: Tensor, side: str, path: str, target: Seq2SeqClass) -> None:
    """Refuse a table that the class would lose, whose own is another."""
    if not torch.allclose(table, own, rtol=0, atol=1e-5):
        raise UsageError(
            f"{path}: the positions of the {side} are not those that {target.architecture} of "
            "transformers computes, and its save_pretrained leaves others out; hf-remote-code "
            "holds them; nothing was written"
        )


_SIDE_NAMES = {"encoder": "source", "decoder": "target"}


def _write_embeddings(
    ours: Parameters,
    state: Dict[str, Tensor],
    target: Seq2SeqClass,
    settings: Settings,
    hidden: Dict[str, int],
) -> None:
    source, decoded = (ours.pop(EMBEDDINGS[side]) for side in SIDES)
    output = ours.pop(OUTPUT, decoded)
    one = source.shape == decoded.shape and torch.equal(source, decoded)
    rows = {side: hidden[side] for side in SIDES}
    if target.gainless:  # T5
        _write_t5(state, target, source, output, settings)
        return
    if one and (not target.two_embeddings or torch.equal(output, decoded)):
        state[target.shared] = extended(source, rows["encoder"])
    else:
        for side, table in zip(SIDES, (source, decoded)):
            state[target.apart[side]] = extended(table, rows[side])
    if not torch.equal(output, decoded):
        state[target.output] = extended(output, rows["decoder"])
    if target.bias is not None:
        bias = torch.zeros(1, len(output) + rows["decoder"])
        bias[:, len(output) :] = HIDDEN
        state[target.bias] = bias


def _write_t5(
    state: Dict[str, Tensor],
    target: Seq2SeqClass,
    embedding: Tensor,
    output: Tensor,
    settings: Settings,
) -> None:
    """The embedding in the scale of T5's inputs, and the output, tied where it is ours, too."""
    root = math.sqrt(embedding.size(1))
    scale = 1.0 if settings["no_scale_embedding"] else root
    state[target.shared] = embedding * scale
    if not torch.equal(embedding, output):
        state[target.output] = output
    elif scale == 1.0:  # T5 divides by √C before the output
        state[f"{target.norms['decoder.layer_norm']}.weight"] *= root
