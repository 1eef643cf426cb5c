"""Saved answers graded again, without asking anybody for a new one.

From a run of this project, a merged file, or files of NeMo Gym; into a run of its own or, for answers whose judge failed, into
the run itself. May import all of `collector`.
"""
