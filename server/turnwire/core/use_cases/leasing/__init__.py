"""Open calls of client tools: listing, claiming, renewing and releasing them."""
