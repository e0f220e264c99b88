"""Deployment: model folders, and translating, scoring and classifying raw text.

Modules are imported from where they are: :mod:`~fairseq_posenc.serving.model_folder` and
:mod:`~fairseq_posenc.serving.translate` import neither PyTorch nor fairseq.
"""

#: The name by which fairseq's ``--bpe`` reads a folder, and the function that messages name.
BPE, SHOWN = "model_folder", "from_pretrained"
