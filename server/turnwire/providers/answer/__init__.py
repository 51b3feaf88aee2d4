"""The common part of all adapters: it turns a provider's bytes into the core's items."""
