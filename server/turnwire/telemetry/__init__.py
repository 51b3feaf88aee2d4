"""Logs for operators."""
