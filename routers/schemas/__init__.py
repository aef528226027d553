"""Request models, one module a dialect."""
