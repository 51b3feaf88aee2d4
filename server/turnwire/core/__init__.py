"""Use cases: what Turnwire does, without any transport, database or SDK.

The way of a message: `conversations` accepts and commits it, `turn_runner` asks the model, `part_stream` turns the
answer into parts and events, `context` decides what the model is sent. Start with `conversations`.
"""
