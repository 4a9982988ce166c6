"""Failures are told to a client in words that it may have. The exception itself goes to the log."""

from __future__ import annotations

import re
from typing import Final

import openai

from drsai_backend.errors import DrSaiError
from drsai_backend.models.endpoints.refused import without_keys, words_of


class RunInterrupted(Exception):
    """The process was shut down while the run was under way."""


class HandedOver(BaseException):
    """The process is shut down, and another one resumes the run. No `Exception`: it passes a team's handlers."""

    code = "shutting_down"

    def __init__(self) -> None:
        super().__init__("This server is shut down; another process resumes the run.")


class PauseRequested(BaseException):
    """Somebody has paused the run, and it has come to a turn boundary."""


_TEXTS: Final[tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str, str], ...]] = (
    (RunInterrupted, "run_interrupted", "The run was interrupted: the server was shut down."),
    (openai.APITimeoutError, "model_timeout", "The model endpoint did not answer in time."),
    (openai.APIConnectionError, "model_unreachable", "The model endpoint cannot be reached."),
    (
        (openai.AuthenticationError, openai.PermissionDeniedError),
        "model_auth",
        "The model endpoint refused the API key (HTTP {status}).",
    ),
    (openai.RateLimitError, "model_rate_limit", "The model endpoint's rate limit or quota is used up (HTTP 429)."),
    (openai.APIStatusError, "model_error", "The model endpoint answered with HTTP {status}."),
    (openai.OpenAIError, "model_error", "The model endpoint's answer cannot be used ({name})."),
    (TimeoutError, "timeout", "Something the team waited for did not answer in time."),
)
"""The code and the text of each kind of error; the first one that fits."""


def safe_message(error: BaseException) -> tuple[str, str]:
    """`(code, text)` of a failed run. The text names what kind of thing failed, and what a model endpoint says of a
    request that it refuses; never what another exception carries: texts of foreign exceptions hold URLs, keys, file
    names and whole tracebacks."""
    if isinstance(error, DrSaiError):
        return error.code, error.message
    status = getattr(error, "status_code", None)
    if (words := words_of(error)) is not None:
        return "model_error", f"The model endpoint refuses the request (HTTP {status}): {words}"
    known = ((code, text) for kinds, code, text in _TEXTS if isinstance(error, kinds))
    code, text = next(known, ("run_failed", "{name} was raised."))
    return code, text.format(status=status, name=type(error).__name__)


def raised_text(error: BaseException) -> str:
    """The class and the text of what was raised, keys masked, for those who may see the log."""
    raised = error if error.__cause__ is None or not isinstance(error, DrSaiError) else error.__cause__
    return without_keys(f"{type(raised).__name__}: {raised}", raised)[:2_000]


_CODE = re.compile(r" failed \((\w+)\): ")
GIVEN_UP: Final = ("The run was given up: ", " failed (team_build_failed): it was given up: ")
"""How the text begins of a run that has killed its processes again and again, in a turn; what it has in it where they
died when its team was built."""


def code_of(text: str | None) -> str | None:
    """The code in a `failure_text` that was stored; None: no text, no failure."""
    if text is None:
        return None
    if text.startswith(GIVEN_UP[0]) or GIVEN_UP[1] in text:
        return "given_up"
    found = _CODE.search(text)
    return "run_failed" if found is None else found[1]


def failure_text(error: BaseException, team: str, agent: str | None) -> str:
    """Return what is stored and shown of a failed run: what failed where, its code, and the text of `safe_message`."""
    code, text = safe_message(error)
    where = f"team {team!r}" if agent is None else f"agent {agent!r} of team {team!r}"
    return f"{where[0].upper()}{where[1:]} failed ({code}): {text}"
