"""Runs over HTTP: ask for them, follow them, stop them, answer them."""

from drsai_backend.api.runs.routes import run_routes

__all__ = ["run_routes"]
