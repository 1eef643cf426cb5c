"""From finished shards to one verified projection, its coverage and its metrics.

Reads files and never talks to a model. Imports `collector` only.
"""
