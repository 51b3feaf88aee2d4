"""What the core needs from outside, as Protocols with the guarantees that an adapter keeps.

Start with `store`. Nothing here has an implementation.
"""
