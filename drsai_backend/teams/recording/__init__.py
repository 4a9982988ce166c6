"""Recording keeps what a team emits, and how its state changes."""
