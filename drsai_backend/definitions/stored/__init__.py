"""Stored definitions are agents and teams that are defined over the API: they are checked, kept with versions, and
served by every worker."""
