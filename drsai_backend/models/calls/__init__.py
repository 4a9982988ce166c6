"""A run's calls of models: the parameters that reach them, the client that makes them, and what is recorded of them."""
