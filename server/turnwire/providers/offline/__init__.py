"""The built-in provider, which needs no network: it plays a script that the message contains."""
