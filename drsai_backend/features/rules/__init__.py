"""Rules say what a key, a user, a tenant or all may have, in place of the settings: what limits and budgets share."""
