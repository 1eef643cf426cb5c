"""From a YAML file to jobs, and from a run directory back to answers for people: the only package that knows jobs.

May import every other package; nothing imports it.
"""
