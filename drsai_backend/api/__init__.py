"""The HTTP interface, and the only package that knows FastAPI. `create_app` puts it together; `openai` is the Chat
Completions dialect, `threads` the stored conversations and their runs, `events` what they tell."""

from drsai_backend.api.app import create_app

__all__ = ["create_app"]
