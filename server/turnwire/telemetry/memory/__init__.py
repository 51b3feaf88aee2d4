"""Gives memory that was freed back to the system; begin with `freed`."""
