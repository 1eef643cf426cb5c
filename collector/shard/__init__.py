"""A shard as it lies on disk: its files held against its journal, what a crash left in them, and who may write there."""
