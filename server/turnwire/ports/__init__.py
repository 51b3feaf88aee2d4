"""The dependencies of the core, as Protocols with the guarantees that an adapter keeps.

Start with `store`. Nothing here reaches outside: `Observer` and `Tracer` stand in for adapters that are off.
"""
