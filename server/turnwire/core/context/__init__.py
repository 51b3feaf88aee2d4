"""The context that a model is sent: the pure assembly, its digests and estimates, and compaction."""
