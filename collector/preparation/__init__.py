"""From a dataset, or from files of NeMo Gym, to a prepared run: everything is checked before anything is made."""
