"""What becomes of a request before it has a run: it joins one, is taken to its thread, waits, or is refused."""
