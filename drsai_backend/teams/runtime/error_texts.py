"""Errors that AutoGen passes on as text, and how they are known again."""

from __future__ import annotations

from typing import cast

# Private: how AutoGen makes text of an error. tests/teams/test_upstream.py fails when it changes.
from autogen_agentchat.teams._group_chat._events import SerializableException

_SERIALISING = SerializableException.from_exception.__func__.__code__  # type: ignore[attr-defined]


class Echoes:
    """The exceptions of a run's teams by the texts that stand for them."""

    def __init__(self) -> None:
        self._errors: dict[str, BaseException] = {}

    def add(self, text: str, error: BaseException) -> None:
        """`run_stream` will raise a `RuntimeError` of this text for `error`."""
        self._errors[text] = error

    def original(self, error: BaseException) -> BaseException:
        """What was raised in the first place, where AutoGen has put something else in its stead."""
        frame = error.__traceback__
        while frame is not None:
            # It makes text of every error, and fails at those whose text cannot be had or is not valid Unicode.
            if frame.tb_frame.f_code is _SERIALISING:
                error = frame.tb_frame.f_locals["exc"]
                break
            frame = frame.tb_next
        if type(error) is RuntimeError:
            return self._errors.get(str(error), error)
        return error


def as_text(error: BaseException) -> SerializableException:
    """AutoGen's text of an error, or one that stands for it where it has none."""
    try:
        return SerializableException.from_exception(cast(Exception, error))
    except Exception:  # noqa: BLE001 - an error whose text cannot be had
        return SerializableException(error_type=type(error).__name__, error_message=f"(no text, {id(error):x})")


def leaked(cancelled: BaseException) -> RuntimeError:
    """What stands for a CancelledError that nobody has asked for."""
    error = RuntimeError("CancelledError was raised although nothing had been cancelled")
    error.__cause__ = cancelled
    return error
