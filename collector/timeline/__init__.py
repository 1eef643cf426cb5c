"""The story of one rollout, as values and in words."""
