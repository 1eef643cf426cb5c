"""Where a merge writes: every refusal first, then all files of one generation, each put in place in one step."""
