"""Reviews a configuration for people: finds all of its problems, and shows every value in effect with its source."""
