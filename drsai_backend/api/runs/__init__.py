"""Runs over HTTP: `routes` to ask for them, stop and answer them; `events`, what they tell."""
