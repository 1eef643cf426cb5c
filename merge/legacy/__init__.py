"""Files that NeMo Gym wrote, without manifest and journal, as inputs of a merge: read by block into columns."""
