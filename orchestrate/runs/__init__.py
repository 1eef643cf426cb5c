"""A run directory: its plan, the names of its files, who may change it, and how it is found again."""
