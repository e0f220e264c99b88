"""Attention layers: fused and explicit attention, self-attention with positions, cross-attention."""
