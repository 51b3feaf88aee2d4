"""Requests of the contract as values, checked for form."""
