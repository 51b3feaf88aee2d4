"""Services about what tenants have used."""
