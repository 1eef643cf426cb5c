"""From a plan to jobs: what is checked before, which shards need one, what was asked of the scheduler and what became of it."""
