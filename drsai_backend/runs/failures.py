"""What a client may be told of an exception. The exception itself goes to the log."""

from __future__ import annotations

import re

import openai

from drsai_backend.errors import DrSaiError


class RunInterrupted(Exception):
    """The process was shut down while the run was under way."""


class HandedOver(BaseException):
    """The process is shut down, and another one resumes the run. No `Exception`: it passes a team's handlers."""

    code = "shutting_down"

    def __init__(self) -> None:
        super().__init__("This server is shut down; another process resumes the run.")


class PauseRequested(BaseException):
    """Somebody has paused the run, and it has come to a turn boundary."""


def safe_message(error: BaseException) -> tuple[str, str]:
    """`(code, text)` of a failed run. The text names what kind of thing failed, never what an exception carries:
    texts of foreign exceptions hold URLs, keys, file names and whole tracebacks."""
    if isinstance(error, DrSaiError):
        return error.code, error.message
    if isinstance(error, RunInterrupted):
        return "run_interrupted", "The run was interrupted: the server was shut down."
    if isinstance(error, openai.APITimeoutError):
        return "model_timeout", "The model endpoint did not answer in time."
    if isinstance(error, openai.APIConnectionError):
        return "model_unreachable", "The model endpoint cannot be reached."
    if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
        return "model_auth", f"The model endpoint refused the API key (HTTP {error.status_code})."
    if isinstance(error, openai.RateLimitError):
        return "model_rate_limit", "The model endpoint's rate limit or quota is used up (HTTP 429)."
    if isinstance(error, openai.APIStatusError):
        return "model_error", f"The model endpoint answered with HTTP {error.status_code}."
    if isinstance(error, openai.OpenAIError):
        return "model_error", f"The model endpoint's answer cannot be used ({type(error).__name__})."
    if isinstance(error, TimeoutError):
        return "timeout", "Something the team waited for did not answer in time."
    return "run_failed", f"{type(error).__name__} was raised."


_CODE = re.compile(r" failed \((\w+)\): ")


def code_of(text: str | None) -> str | None:
    """The code in a `failure_text` that was stored; None: no text, no failure."""
    if text is None:
        return None
    found = _CODE.search(text)
    return "run_failed" if found is None else found[1]


def failure_text(error: BaseException, team: str, agent: str | None) -> str:
    """What is stored and shown of a failed run: what failed where, its code, and the text of `safe_message`."""
    code, text = safe_message(error)
    where = f"team {team!r}" if agent is None else f"agent {agent!r} of team {team!r}"
    return f"{where[0].upper()}{where[1:]} failed ({code}): {text}"
