"""Requests about files."""
