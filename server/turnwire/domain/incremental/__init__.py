"""Room and shares of what is scarce, given in an order that is fair."""
