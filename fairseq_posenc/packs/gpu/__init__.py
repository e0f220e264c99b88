"""Optional ways of computing on a GPU: recorded steps, FlexAttention and compiled layers."""
