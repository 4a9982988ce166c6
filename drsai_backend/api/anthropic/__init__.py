"""Anthropic's dialect: its messages, read as calls of Chat Completions and written in its own events and errors."""
