"""Deployment: model folders, and translating, scoring and classifying raw text.

Modules are imported from where they are: :mod:`~fairseq_posenc.serving.model_folder` and
:mod:`~fairseq_posenc.serving.translate` import neither PyTorch nor fairseq.
"""
