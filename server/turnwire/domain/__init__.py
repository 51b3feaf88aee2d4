"""Values: what a session, a message, an event and an error are.

Nothing here does I/O, knows a clock or imports another package of Turnwire. Start with `messages`.
"""
