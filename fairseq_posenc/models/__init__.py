"""Model families; importing this registers them with fairseq."""

from fairseq_posenc.models import language_model, masked_lm, multilingual, translation

#: Architectures with their own settings, by the name of the model they configure.
PRESETS_OF = {
    module.MODEL: module.PRESETS
    for module in (translation, multilingual, masked_lm, language_model)
}

__all__ = ["PRESETS_OF", "language_model", "masked_lm", "multilingual", "translation"]
