"""Budgets say how many tokens, and how much money, a key, a user, a thread, a tenant and all may spend in a day and a
month."""
