"""The log of events: reading it, renewing what older versions wrote, and forgetting what is old."""
