"""What a person does with a submitted run beside looking at it: follow logs, cancel, clean up, ask why, count what was lost."""
