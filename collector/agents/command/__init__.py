"""A benchmark that is one command: its process, what it left behind, and what that is worth."""
