"""A run on a cluster that this machine reaches by ssh."""
