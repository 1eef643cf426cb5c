"""The services of one job: where they stand, how they start, when they are ready, that they end with it."""
