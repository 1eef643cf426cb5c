"""Who grades an answer. One module per verifier family; `base` holds the contract and the registry."""
