"""Text for people: counted, harmless to a terminal, and without secrets."""
