"""Logs for the viewer of inspect_ai. Its package is not needed to write them."""
