"""What callers hand in, as values, and how it becomes content of messages."""
