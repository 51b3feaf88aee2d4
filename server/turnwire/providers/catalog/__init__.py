"""What is known about models: lists and prices."""
