"""Who answers a task. One module per agent; `base` holds the contract and the registry."""
