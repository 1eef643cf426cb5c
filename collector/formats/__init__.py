"""The formats of a shard's files: each a frozen type with encode and parse beside it, and what stands in a row of it."""
