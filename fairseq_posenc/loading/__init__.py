"""What a checkpoint may be used for: evaluation, resuming, fine-tuning, warm starts.

Everything here follows from the roles of settings (:mod:`fairseq_posenc.settings`).
"""
