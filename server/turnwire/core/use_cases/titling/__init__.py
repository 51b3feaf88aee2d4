"""Titles that a model gives to sessions which nobody has given one."""
