"""Tables for notebooks and spreadsheets: one row a rollout."""
