"""A model's answer: calls the model, builds the message, and saves it while it streams."""
