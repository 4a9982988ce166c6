"""Tools that are registered over the API: kept per tenant with versions, served to agents that name them, counted."""
