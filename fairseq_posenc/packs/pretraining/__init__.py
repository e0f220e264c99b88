"""Further ways of pre-training: ELECTRA, masked spans, pairs of texts, and a mask decoder."""
