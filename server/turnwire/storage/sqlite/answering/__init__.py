"""Reads what is answered: questions, and the messages whose calls get results."""
