"""Mistakes on fairseq's command lines, reported on one line.

fairseq answers many of them with its usage of 12 kB, or with a traceback.  An error that is not
known here keeps its traceback, because it may be a fault of the program.
"""
