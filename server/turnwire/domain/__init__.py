"""Values: sessions, messages, events and errors.

Nothing here does I/O, reads a clock or imports another package of Turnwire. Start with `conversation.messages`.
"""
