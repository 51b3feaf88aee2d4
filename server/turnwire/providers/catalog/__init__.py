"""What is known of models: lists and prices."""
