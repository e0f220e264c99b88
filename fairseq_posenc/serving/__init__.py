"""Deployment: model folders, and translating, scoring and classifying raw text.

Import each module by its own name, because :mod:`~fairseq_posenc.serving.model_folder` and
:mod:`~fairseq_posenc.serving.translate` import neither PyTorch nor fairseq.
"""
