"""What others see of the server's work: reports of what ended, and traces."""
