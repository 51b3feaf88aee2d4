"""The context that a model gets: the pure assembly, its digests and estimates, and compaction."""
