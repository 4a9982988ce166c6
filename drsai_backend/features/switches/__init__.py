"""Switches say what operators have switched off: new runs of a team, a tenant or all, a model, a tool."""
