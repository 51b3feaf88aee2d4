"""The feed of one process, in memory."""
