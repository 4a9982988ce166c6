"""Agents and teams that are defined over the API: checked, kept with versions, and served by every worker."""
