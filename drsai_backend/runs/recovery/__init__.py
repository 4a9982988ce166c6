"""Runs whose worker is gone are found and resumed; leases tell whose they are."""
