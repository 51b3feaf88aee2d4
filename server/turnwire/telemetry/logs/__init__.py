"""Log lines: their form, what turns and model calls tell, and how they get out."""
