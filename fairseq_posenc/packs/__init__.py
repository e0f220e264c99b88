"""Parts of the plug-in that it works without: a folder each, which registers what it has.

A folder can be deleted, with its tests; nothing outside of it imports it or names what it
registers.  :mod:`fairseq_posenc.basics.packages` loads them.
"""
