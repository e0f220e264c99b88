"""Models for CTranslate2."""
