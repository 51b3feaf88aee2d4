"""From a provider's bytes to the core's items: what all adapters share."""
