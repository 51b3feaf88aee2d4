"""The log of events: reading it, and forgetting what is old."""
