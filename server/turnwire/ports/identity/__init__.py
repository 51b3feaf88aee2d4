"""The identity of callers: what a listener knows about a caller, and the store of Turnwire's own tokens."""
