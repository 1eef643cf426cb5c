"""How a sender says no."""

from __future__ import annotations


class Refused(Exception):  # noqa: N818 - it is an answer, not a fault of ours
    """What a backend said no to, or that it could not be reached."""
