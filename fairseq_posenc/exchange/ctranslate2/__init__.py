"""Export of models to the engine CTranslate2."""
