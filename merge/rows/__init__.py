"""Selected rows in order: read, checked against what was recorded of them, and their numbers taken out of their text."""
