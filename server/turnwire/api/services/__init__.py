"""The services of the contract, one module each. Knows no transport."""
