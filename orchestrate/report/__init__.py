"""One self-contained HTML page about a run: gathered from its files, drawn as inline SVG, readable without network or scripts.

Reads what `collector` and `merge` left on disk and never asks a scheduler or a model.
"""
