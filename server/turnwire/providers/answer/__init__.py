"""The common part of all adapters: turns a provider's bytes into the core's items."""
