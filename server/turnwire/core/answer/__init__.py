"""A model's answer: asks for it, builds the message, and saves it while it streams."""
