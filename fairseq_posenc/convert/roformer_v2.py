"""RoFormerV2 as its released classes save it: masked language models.

Its folders call themselves ``roformer``, too, with ``norm_type`` rms_norm and ``use_bias`` false:
no biases, norms without parameters, and an output that is the tied embedding alone ("Implementation
and Experiments for GAU-based Model", Liu, section 4.1).  The classes of transformers ignore these
entries, so they cannot compute it.
"""

from typing import Optional

from torch import Tensor

from fairseq_posenc.convert import huggingface
from fairseq_posenc.convert.base import Format, Imported, Reference
from fairseq_posenc.convert.dictionary import Vocabulary, renumber
from fairseq_posenc.convert.hf_config import architecture_of, move_output, one_of
from fairseq_posenc.convert.hf_roformer import settings_of
from fairseq_posenc.convert.huggingface import Folder
from fairseq_posenc.convert.native import EMBEDDING, ENCODER, PAD
from fairseq_posenc.convert.reader import Reader
from fairseq_posenc.convert.roformer_names import (
    BASE,
    DECODER,
    PROJECTIONS,
    SEGMENTS,
    UNUSED,
    check_version,
    drop_table,
)
from fairseq_posenc.convert.simple_reference import released_logits, tied_head, transformer_layer
from fairseq_posenc.models import presets
from fairseq_posenc.models.masked_lm import RELEASED

_WORDS = BASE + "embeddings.word_embeddings.weight"
_OUTPUT = DECODER + "weight"


def read(path: str, vocab: Optional[str]) -> Imported:
    """Read a folder.

    Args:
        path: the folder.
        vocab: its vocab.txt, if that lies elsewhere.

    Raises:
        UsageError: a file is missing or of another kind, sizes do not agree, or the model has
            something that ours does not.
    """
    folder = huggingface.read_folder(path, "roformer")
    check_version(folder, "roformer-v2")
    # its causal class shows every token the later ones, unless it is given a mask
    name = architecture_of(folder, ["RoFormerForMaskedLM"])
    one_of(folder, "is_decoder", False, (False,))
    settings = {**presets.ROFORMER_V2, **RELEASED, **settings_of(folder)}
    channels = settings["encoder_embed_dim"]
    one_of(folder, "embedding_size", channels, (channels,))
    symbols, special, source = huggingface.read_vocabulary(path, vocab)
    vocabulary = renumber(symbols, special, source)

    reader = Reader(folder.weights, folder.state)
    reader.move_rows(_WORDS, EMBEDDING, vocabulary)
    reader.move(BASE + "embeddings.token_type_embeddings.weight", SEGMENTS)
    for layer in range(settings["encoder_layers"]):
        for ours, theirs in PROJECTIONS.items():
            reader.move(
                f"{BASE}encoder.layer.{layer}.{theirs}.weight",
                f"{ENCODER}layers.{layer}.{ours}.weight",
            )
    settings["untie_weights_roberta"] = move_output(folder, reader, _OUTPUT, _WORDS, vocabulary)
    drop_table(reader)
    unused = reader.drop(*UNUSED)
    reader.finish(f"config.json ({name})")
    return Imported(
        settings,
        reader.state,
        reader.origin,
        vocabulary,
        _reference(folder, vocabulary),
        "the released model's formulas in float64 (transformers has no such class)",
        notes=[f"left out {key}, on which nothing depends" for key in unused],
    )


def _reference(folder: Folder, vocabulary: Vocabulary) -> Reference:
    """Logits from the formulas, of our tokens and in our order."""
    state, order = folder.state, vocabulary.order
    config = {**folder.config, "hidden_act": huggingface.activation_of(folder)}

    def logits(tokens: Tensor, segments: Tensor) -> Tensor:
        head = tied_head(state[_OUTPUT if _OUTPUT in state else _WORDS])
        released = released_logits(transformer_layer, BASE, state, config, head)
        return released(order[tokens], segments, tokens.ne(PAD))[..., order]

    return logits


ROFORMER_V2 = Format(
    name="roformer-v2",
    summary="a folder of RoFormerV2's masked language model",
    read=read,
)
