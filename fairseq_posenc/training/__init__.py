"""Tasks, criterions and optimisers that fairseq lacks."""
