"""What bounds the calls of all listeners together: how many there are, what they send, and what happens to peers that
only attack. Knows no transport. Start with `load.Load`.
"""
