"""Answers whose texts are long."""
