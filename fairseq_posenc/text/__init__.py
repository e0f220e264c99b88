"""Text as models see it: normalising, tokenising, subwords and symbols, without fairseq."""
