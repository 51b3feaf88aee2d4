"""Use cases about what people are asked."""
