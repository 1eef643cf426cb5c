"""What a journal makes of rollouts, and what may still be done with each of them: folds and decisions over values."""
