"""Ways of pre-training beside masked tokens: replaced-token detection."""
