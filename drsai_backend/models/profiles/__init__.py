"""Profiles are models by name: what is written of them in one file, and the clients that are made of it."""
