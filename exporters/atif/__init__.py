"""Rollouts as ATIF v1.7 trajectory files: the format, the profiles that map a row to it, and the published folder."""
