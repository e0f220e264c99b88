"""Optional parts of the plug-in: each is a folder that registers what it adds.

A folder can be deleted together with its tests: nothing outside the folder imports it or names what
it registers.  :mod:`fairseq_posenc.basics.packages` loads the folders.
"""
