"""Deployment: exporting to CTranslate2, model folders, and translating raw text.

Modules are imported from where they are: :mod:`~fairseq_posenc.deploy.model_folder`,
:mod:`~fairseq_posenc.deploy.text` and :mod:`~fairseq_posenc.deploy.translate` import neither
PyTorch nor fairseq.
"""
