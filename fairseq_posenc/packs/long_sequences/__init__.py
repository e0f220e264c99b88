"""Kernels for long sequences beside those of the core: BigBird, Reformer, Linformer, cosFormer."""
