"""RoFormerV2 as its released classes save it: masked language models.

Its folders also have the model type ``roformer``, with ``norm_type`` rms_norm and ``use_bias``
false: no biases, norms without parameters, and only the tied embedding as output
("Implementation and Experiments for GAU-based Model", Liu, section 4.1).  The classes of
transformers ignore these entries and so cannot run it.
"""

from typing import Optional

from torch import Tensor

from fairseq_posenc.exchange import huggingface
from fairseq_posenc.exchange import released_formulas as formulas
from fairseq_posenc.exchange import roformer_names as names
from fairseq_posenc.exchange.formats import ForeignModel, Imported, Importer, register_format
from fairseq_posenc.exchange.kinds import ENCODER, PAD
from fairseq_posenc.exchange.reader import read_vocabulary
from fairseq_posenc.models import presets
from fairseq_posenc.models.presets import RELEASED


class RoFormerV2Importer(Importer):
    """Reads a folder of RoFormerV2's masked language model."""

    def read(self, path: str, vocab: Optional[str]) -> Imported:
        """See :class:`~fairseq_posenc.exchange.formats.Importer`."""
        folder, vocabulary = names.open_roformer(path, "roformer-v2"), read_vocabulary(path, vocab)
        config = folder.config
        # its causal class attends to later tokens unless it is given a mask
        name = config.architecture(["RoFormerForMaskedLM"])
        config.one_of("is_decoder", False, (False,))
        settings = {**presets.ROFORMER_V2, **RELEASED, **names.settings_of(config)}
        channels = settings["encoder_embed_dim"]
        config.one_of("embedding_size", channels, (channels,))

        reader = huggingface.reader_of(folder, vocabulary, names.BASE)
        for layer in range(settings["encoder_layers"]):
            for ours, theirs in names.PROJECTIONS.items():
                reader.move(
                    f"{names.BASE}encoder.layer.{layer}.{theirs}.weight",
                    f"{ENCODER}layers.{layer}.{ours}.weight",
                )
        settings["untie_weights_roberta"] = huggingface.move_output(folder, reader, names.BASE)
        notes = names.drop_unused(reader, config)
        reader.finish(f"config.json ({name})")
        foreign = _reference(folder, vocabulary.order)
        return Imported(
            settings, reader.parameters, reader.origin, vocabulary, foreign, notes=notes
        )


def _reference(folder: huggingface.Folder, order: Tensor) -> ForeignModel:
    """The model computed from its formulas."""
    entries = {**folder.config.entries, "hidden_act": huggingface.activation_of(folder.config)}

    def logits(tokens: Tensor, segments: Tensor) -> Tensor:
        head = formulas.tied_head(huggingface.output_weight(folder, names.BASE))
        released = formulas.released_logits(
            formulas.transformer_layer, names.BASE, folder.parameters, entries, head
        )
        return released(order[tokens], segments, tokens.ne(PAD))[..., order]

    return ForeignModel(logits, formulas.FORMULAS)


register_format(
    "roformer-v2",
    summary="a folder of RoFormerV2's masked language model",
    importer=RoFormerV2Importer(),
)
