"""The catalog of models: lists and prices."""
