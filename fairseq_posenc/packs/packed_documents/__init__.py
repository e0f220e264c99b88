"""``--document-mask``: each document of a packed sample is computed alone."""
