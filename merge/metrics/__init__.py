"""From columns of numbers to figures with what they rest on. Pure."""
