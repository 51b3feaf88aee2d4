"""Bytes of a provider to items of the core: what all adapters share."""
