"""Uses of a checkpoint: evaluation, resuming, fine-tuning and warm starts.

All checks follow from the roles of settings (:mod:`fairseq_posenc.settings`).
"""
