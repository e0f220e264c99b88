"""Import and export of model folders of transformers."""
