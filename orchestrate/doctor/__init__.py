"""Whether this machine, the cluster and the storage are what a run relies on; each finding says what to do."""
