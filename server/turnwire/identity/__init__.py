"""Authentication: own tokens, JSON web tokens and client certificates. Start with `authentication`.

Implements `turnwire.ports.identity.authenticator`. Credentials never leave this package: not into a log, an error or a
principal. What is remembered about them is their SHA-256 hash.
"""
