"""Tasks on one or two sentences: read, checked and scored here for recipes and studies alike."""
