"""How shards become jobs: one module for each place where jobs run, all behind one contract."""
