"""Trackers of experiments: what is sent is decided here, and a child process with an end sends it."""
