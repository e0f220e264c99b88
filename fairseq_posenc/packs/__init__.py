"""Parts that the plug-in works without: each is a folder, which registers what it adds.

A folder can be deleted, with its tests; nothing outside of a folder imports it or names what it
registers.  :mod:`fairseq_posenc.basics.packages` loads the folders.
"""
