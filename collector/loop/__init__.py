"""From what is left to do to one attempt after another: which, when, how many at once, and until when."""
