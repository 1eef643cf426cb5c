"""How far a run is, by its files and its scheduler, as values; the command line prints them."""
