"""The identity of callers: the facts that a listener has on a caller, and the store of Turnwire's own tokens."""
