"""The errors of a run's teams are known again here where AutoGen passes them on as text, with who raised them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

# Private: how AutoGen makes text of an error, and holds an agent. tests/teams/test_upstream.py fails when it changes.
# pyright: reportPrivateUsage=false
from autogen_agentchat.teams._group_chat._chat_agent_container import ChatAgentContainer
from autogen_agentchat.teams._group_chat._events import SerializableException

_SERIALISING = SerializableException.from_exception.__func__.__code__  # type: ignore[attr-defined]


@dataclass(slots=True, eq=False)
class TeamErrors:
    """The exceptions of a run's teams. `by_text`: `run_stream` will raise a `RuntimeError` of this text for them."""

    by_text: dict[str, BaseException] = field(default_factory=dict[str, BaseException])
    # The error is kept: an id says nothing once its object is gone.
    _blamed: dict[int, tuple[BaseException, str]] = field(default_factory=dict[int, tuple[BaseException, str]])

    def blame(self, agent: object, error: BaseException) -> None:
        """Note that this participant, or manager, has raised `error`; of those inside each other, the innermost
        counts."""
        name = agent._agent.name if isinstance(agent, ChatAgentContainer) else getattr(agent, "_name", None)
        if name is not None:
            self._blamed.setdefault(id(error), (error, name))

    def blamed(self, error: BaseException) -> str | None:
        """The name of the one that raised an error; None: none of them."""
        return self._blamed.get(id(error), (None, None))[1]

    def original(self, error: BaseException) -> BaseException:
        """Return what was raised in the first place, where AutoGen has put something else in its stead."""
        frame = error.__traceback__
        while frame is not None:
            # It makes text of every error, and fails at those whose text cannot be had or is not valid Unicode.
            if frame.tb_frame.f_code is _SERIALISING:
                error = frame.tb_frame.f_locals["exc"]
                break
            frame = frame.tb_next
        if type(error) is RuntimeError:
            return self.by_text.get(str(error), error)
        return error


def as_text(error: BaseException) -> SerializableException:
    """AutoGen's text of an error, or one that stands for it where it has none."""
    try:
        return SerializableException.from_exception(cast(Exception, error))
    except Exception:  # noqa: BLE001 - an error whose text cannot be had
        return SerializableException(error_type=type(error).__name__, error_message=f"(no text, {id(error):x})")


def leaked(cancelled: BaseException) -> RuntimeError:
    """Return what stands for a CancelledError that nobody has asked for."""
    error = RuntimeError("CancelledError was raised although nothing had been cancelled")
    error.__cause__ = cancelled
    return error
