"""opencode.search."""
