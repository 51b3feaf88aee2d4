"""Log lines: their form, those of turns and model calls, and their output."""
