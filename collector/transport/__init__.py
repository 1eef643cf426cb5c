"""HTTP requests of agents and probes: libcurl on the running event loop, every wait bounded, every fault a value."""
