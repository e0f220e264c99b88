"""Attention: fused and explicit, self-attention with positions, and cross-attention."""
