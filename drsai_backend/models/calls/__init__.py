"""Calls of models are made for a run: by parameters that reach them and a client that makes them, with what is recorded
of them."""
