"""Whether a team's run is stopped when its client leaves."""

from __future__ import annotations

from drsai_backend.teams.options import F, option, option_of

NAME = "stop_on_disconnect"


def stop_on_disconnect(factory: F) -> F:
    """Decorate a team factory whose runs are stopped when their client leaves, whatever `DRSAI_ON_DISCONNECT` says: for
    teams that people talk to in windows with a stop button. A request's own `on_disconnect` comes first.

    ::

        @stop_on_disconnect
        def writer(context: RunContext) -> AssistantAgent: ...
    """
    return option(NAME, True)(factory)


def stops_on_disconnect(factory: object) -> bool | None:
    """What a team factory says: by the decorator, or by the key `stop_on_disconnect` beside a component config. None:
    nothing.

    Raises:
        ValueError: it is neither true nor false.
    """
    value = option_of(factory, NAME)
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"{NAME} must be true or false")
    return value
