"""HTTP/1.1 by uvicorn and HTTP/2 by h2, with bounds in size, count and time, and the certificates of TLS."""
