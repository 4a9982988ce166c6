"""Stored conversations over HTTP: list, read, delete."""

from drsai_backend.api.threads.routes import thread_routes

__all__ = ["thread_routes"]
