"""Studies: the same experiment with several systems and seeds, run, resumed and reported."""
