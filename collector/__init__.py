"""One shard: its files, its journal, its lock, and the loop that fills it.

Knows nothing of Slurm, of merging or of export. May be imported by every other package; imports none of them.
"""
