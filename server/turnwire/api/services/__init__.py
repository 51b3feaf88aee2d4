"""The services of the contract, one module each. Knows no transport."""

STREAM_OPEN = bytes(bytearray(b"stream open"))
"""Yielded by a stream that may have nothing to say for long: sends the initial metadata, so that a client that waits
for them knows that it misses nothing from now on. Later ones send nothing, and let the credentials of a silent
stream be checked. Compared by identity, never sent."""
