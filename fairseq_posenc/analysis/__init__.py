"""Looking into trained models: positions, attention, perplexity by length, loss curves."""
