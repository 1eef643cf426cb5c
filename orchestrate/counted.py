"""How a number is said, under the name by which the modules of this package know it."""

from __future__ import annotations

from collector.counted import counted

__all__ = ["counted"]
