"""Steps that are done once: locks, digests of inputs, markers, processes, trainings that go on.

A step runs commands that make outputs from inputs.  Its marker, a file in the folder ``steps``, is
written when the commands have ended well, and holds a digest of the commands, the settings and the
content of the inputs: as long as that digest is the same and the outputs are there, the step is not
repeated.  Studies use the modules; the recipes in ``examples/`` use ``fairseq-posenc step``.
"""
