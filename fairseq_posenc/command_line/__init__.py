"""One-line reports of mistakes on the command lines of fairseq.

fairseq answers many mistakes with 12 kB of usage text, or with a traceback.  An error that this
package does not recognise keeps its traceback, because it may be a fault of the program.
"""
