"""The built-in provider, which needs no network: it performs a script that the message contains."""
