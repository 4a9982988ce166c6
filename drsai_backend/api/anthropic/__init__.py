"""Anthropic's dialect has its messages read as calls of Chat Completions, and writes its own events and errors."""
