from __future__ import annotations

from typing import Any

import pytest

from drsai_backend import RunContext, RunLimits, answered_by, client_tools, limited, shows, stop_on_disconnect
from drsai_backend.errors import ConfigurationError
from drsai_backend.teams.client_tools.policy import ToolPolicy
from drsai_backend.teams.context import takes_context
from drsai_backend.teams.options import NO_OPTIONS, TeamOptions, options_of

SAID = TeamOptions(RunLimits(max_turns=4), ToolPolicy("offer", "editor"), True, "writer", ["writer", "editor"])
WRONG = {
    "limits": ([3], "limits are an object of max_turns, max_run_seconds and max_run_tokens"),
    "stop_on_disconnect": ("yes", "stop_on_disconnect must be true or false"),
    "answered_by": (["writer"], "`answered_by` must be the name of a participant"),
    "shown": ([], "`shown` must be a list of names of participants, or 'last'"),
    "client_tools": ("take", "client_tools: mode must be one of offer, ignore, refuse"),
}


def crew(context: RunContext) -> Any:
    """A crew."""
    return context


def test_decorators_add_up_and_change_no_factory() -> None:
    made = stop_on_disconnect(shows("writer", "editor")(answered_by("writer")(limited(max_turns=4)(crew))))
    whole = client_tools("offer", agent="editor")(made)
    assert options_of(whole) == SAID
    assert options_of(made).client_tools == ToolPolicy()
    assert options_of(crew) == NO_OPTIONS
    assert (whole.__doc__, takes_context(whole), whole(3)) == ("A crew.", True, 3)  # pyright: ignore[reportArgumentType]
    assert options_of(shows("last")(whole)).shown == "last"
    assert options_of(limited(max_run_seconds=1)(whole)).limits == RunLimits(max_run_seconds=1)


def test_keys_beside_a_config_say_the_same() -> None:
    config = {
        "provider": "x.Y",
        "config": {},
        "limits": {"max_turns": 4},
        "stop_on_disconnect": True,
        "answered_by": "writer",
        "shown": ["writer", "editor"],
        "client_tools": {"mode": "offer", "agent": "editor"},
    }
    assert options_of(config) == SAID
    assert options_of({"provider": "x.Y", "permissions": ["x"], **dict.fromkeys(WRONG)}) == NO_OPTIONS


@pytest.mark.parametrize("key", WRONG)
def test_a_value_that_cannot_be_used(key: str) -> None:
    value, text = WRONG[key]
    with pytest.raises(ValueError) as caught:
        options_of({key: value})
    assert str(caught.value) == text


def test_a_decorator_that_cannot_be_used() -> None:
    with pytest.raises(ConfigurationError, match="max_turns must be a number that is not negative"):
        limited(max_turns=-1)
    with pytest.raises(ConfigurationError, match="mode must be one of offer, ignore, refuse"):
        client_tools("take")  # pyright: ignore[reportArgumentType]
