"""Watches of the process itself: how late its event loop runs, and how much memory it has."""
