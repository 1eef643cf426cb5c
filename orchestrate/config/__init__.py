"""What a submit YAML may say, as strict models, and every problem with it in one message."""
