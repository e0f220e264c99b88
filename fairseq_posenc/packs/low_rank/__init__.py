"""Low-rank adaptation of a model (LoRA), and training of only some of its parameters."""
