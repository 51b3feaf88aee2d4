"""A model's answer: asking for it, building the message, saving it behind the stream."""
