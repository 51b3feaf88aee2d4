"""Moving conversations in and out: archives, and the uploads that carry them."""
