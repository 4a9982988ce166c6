"""Failures of a server are put into words for the model that has called its tool."""

from __future__ import annotations

from typing import cast


class ServerFailed(Exception):
    """A server does not do what it was asked. The text is safe to show.

    Args:
        text: what has happened.
        is_lost: there is no connection any more; another one may do better.
        is_unreachable: there was none, so that nothing was asked: a backup server may be.
    """

    def __init__(self, text: str, *, is_lost: bool = False, is_unreachable: bool = False) -> None:
        super().__init__(text)
        self.is_lost = is_lost or is_unreachable
        self.is_unreachable = is_unreachable


def first_of(error: BaseException) -> BaseException:
    """Return what is at the bottom of the groups that task groups make of it."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def text_of(error: BaseException) -> str:
    """One line of it, bounded."""
    error = first_of(error)
    return " ".join((str(error) or type(error).__name__).split())[:300]
