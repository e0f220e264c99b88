"""Ways of pre-training beside masked tokens: ELECTRA, spans, pairs of texts, a mask decoder."""
