"""Metrics has what Prometheus asks for at `/metrics`: what processes have counted, and how things stand in the
database."""
