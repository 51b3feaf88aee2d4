"""The use cases about what tenants have used."""
