"""Stored definitions of agents and teams: their versions, and what of them a process remembers."""
