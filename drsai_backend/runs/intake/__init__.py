"""The intake of a request is what becomes of it before it has a run: it joins one, is taken to its thread, waits, or is
refused."""
