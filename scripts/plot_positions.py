#!/usr/bin/env python3
"""The former name of `fairseq-posenc plot positions`, which this runs from the checkout."""

from former_name import become

become("plot", "positions")
