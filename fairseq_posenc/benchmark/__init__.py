"""Time and memory of models: training, generation, attention by length, and model folders."""
