"""Moving conversations in and out: archives, and the uploads in which they come."""
