"""From a published projection to a tracker, a table or a trajectory folder.

Reads files and never talks to a model. Imports `merge` and `collector` only; a backend is imported when it is used.
"""
