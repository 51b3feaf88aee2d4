"""Values as messages of the contract."""
