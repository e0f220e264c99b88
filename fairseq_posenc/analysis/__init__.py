"""Analysis of trained models: positions, attention, perplexity by length, loss curves."""
