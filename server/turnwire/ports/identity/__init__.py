"""Who calls: what a listener knows about a caller, and where Turnwire's own tokens are kept."""
