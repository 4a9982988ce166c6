"""Endpoints differ in which messages and parameters they take, how an answer is continued, and what they tell of it."""
