"""How endpoints differ: which messages and parameters they take, how an answer is continued, what they tell of it."""
