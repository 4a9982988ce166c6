"""Registered tools come over the API: they are kept per tenant with versions, served to agents that name them,
counted."""
