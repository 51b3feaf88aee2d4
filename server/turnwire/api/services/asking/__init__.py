"""Services about what people are asked."""
