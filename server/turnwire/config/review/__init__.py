"""Looks at a configuration for people: all of its problems, and every value that is in effect with its source."""
