"""Tasks answered and graded by the running servers of a NeMo Gym: configuration, routing, wire contract, identity."""
