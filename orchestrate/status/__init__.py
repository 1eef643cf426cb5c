"""How far a run is, by its files and its scheduler, as values; who prints them is the command line."""
