"""Computing again only what is new, from where it began to differ."""
