"""Computing again only what is new: in slices, from where it began to differ."""
