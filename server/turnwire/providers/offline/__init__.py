"""The built-in provider, which needs no network: it performs a script from the user's message."""
