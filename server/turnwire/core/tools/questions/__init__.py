"""Questions that tools ask while they run: what they may ask, and how they get their answers."""
