"""What went wrong with a call, in the words of the domain."""
