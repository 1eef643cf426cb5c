"""A candidate beside a base: their differences, whether the evidence is enough to say so, and the gate."""
