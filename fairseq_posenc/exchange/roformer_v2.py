"""RoFormerV2 as its released classes save it: masked language models.

Its folders also have the model type ``roformer``, with ``norm_type`` rms_norm and ``use_bias``
false: no biases, norms without parameters, and only the tied embedding as output
("Implementation and Experiments for GAU-based Model", Liu, section 4.1).  The classes of
transformers ignore these entries and so cannot run it.
"""

from typing import Optional

from torch import Tensor

from fairseq_posenc.exchange.formats import ForeignModel, Imported, Importer, register_format
from fairseq_posenc.exchange.huggingface import (
    DECODER,
    Folder,
    activation_of,
    move_output,
    reader_of,
    token_embedding_of,
)
from fairseq_posenc.exchange.kinds import ENCODER, PAD
from fairseq_posenc.exchange.released_formulas import (
    FORMULAS,
    released_logits,
    tied_head,
    transformer_layer,
)
from fairseq_posenc.exchange.roformer_names import (
    BASE,
    PROJECTIONS,
    drop_unused,
    open_roformer,
    settings_of,
)
from fairseq_posenc.exchange.vocabulary import read_vocabulary
from fairseq_posenc.models import presets
from fairseq_posenc.models.masked_lm_presets import RELEASED


class RoFormerV2Importer(Importer):
    """Reads a folder of RoFormerV2's masked language model."""

    def read(self, path: str, vocab: Optional[str]) -> Imported:
        """See :class:`~fairseq_posenc.exchange.formats.Importer`."""
        folder, vocabulary = open_roformer(path, "roformer-v2"), read_vocabulary(path, vocab)
        config = folder.config
        # its causal class attends to later tokens unless it is given a mask
        name = config.architecture(["RoFormerForMaskedLM"])
        config.one_of("is_decoder", False, (False,))
        settings = {**presets.ROFORMER_V2, **RELEASED, **settings_of(config)}
        channels = settings["encoder_embed_dim"]
        config.one_of("embedding_size", channels, (channels,))

        reader = reader_of(folder, vocabulary, BASE)
        for layer in range(settings["encoder_layers"]):
            for ours, theirs in PROJECTIONS.items():
                reader.move(
                    f"{BASE}encoder.layer.{layer}.{theirs}.weight",
                    f"{ENCODER}layers.{layer}.{ours}.weight",
                )
        settings["untie_weights_roberta"] = move_output(folder, reader, BASE)
        notes = drop_unused(reader, config)
        reader.finish(f"config.json ({name})")
        foreign = _reference(folder, vocabulary.order)
        return Imported(
            settings, reader.parameters, reader.origin, vocabulary, foreign, notes=notes
        )


def _reference(folder: Folder, order: Tensor) -> ForeignModel:
    """The model computed from its formulas."""
    parameters = folder.parameters
    entries = {**folder.config.entries, "hidden_act": activation_of(folder.config)}
    output = DECODER + "weight" if DECODER + "weight" in parameters else token_embedding_of(BASE)

    def logits(tokens: Tensor, segments: Tensor) -> Tensor:
        head = tied_head(parameters[output])
        released = released_logits(transformer_layer, BASE, parameters, entries, head)
        return released(order[tokens], segments, tokens.ne(PAD))[..., order]

    return ForeignModel(logits, FORMULAS)


register_format(
    "roformer-v2",
    summary="a folder of RoFormerV2's masked language model",
    importer=RoFormerV2Importer(),
)
