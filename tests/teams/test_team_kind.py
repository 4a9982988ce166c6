"""A team kind of one's own: its class says what of it is stored with the thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage
from autogen_agentchat.teams._group_chat._base_group_chat_manager import BaseGroupChatManager

from drsai_backend import DrSai, DrSaiGroupChat
from drsai_backend.config import Settings
from drsai_backend.teams.recording.base import Field, fields_of
from tests.support.teams.scenarios import agent


class FairManager(BaseGroupChatManager):
    """Whoever has spoken least in the thread is next."""

    durable_fields = ("_last", Field("_spoken", dict, Counter))

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._spoken: Counter[str] = Counter()
        self._last: list[str] = []
        self._seen = 0

    async def validate_group_state(self, messages: list[BaseChatMessage] | None) -> None:
        pass

    async def reset(self) -> None:
        self._message_thread.clear()

    async def select_speaker(self, thread: Sequence[BaseAgentEvent | BaseChatMessage]) -> str:
        self._seen += 1
        name = min(self._participant_names, key=lambda each: self._spoken[each])
        self._spoken[name] += 1
        self._last.append(name)  # in place: what is stored is a copy
        return name


class Fair(DrSaiGroupChat):
    def __init__(self, *names: str, max_turns: int) -> None:
        super().__init__(
            name="fair",
            description="",
            participants=[agent(name, False) for name in names],
            group_chat_manager_name="FairManager",
            group_chat_manager_class=FairManager,
            max_turns=max_turns,
        )

    def _create_group_chat_manager_factory(self, *args: Any, **options: Any) -> Callable[[], FairManager]:
        return lambda: FairManager(*args, **options, emit_team_events=False)


@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
async def test_declared_fields_are_kept_with_the_thread(database_url: str, cold: bool) -> None:
    """Also by a process that has not seen the thread before; what is not declared starts afresh."""
    said: list[str] = []
    settings = Settings(_env_file=None, warm_threads=0 if cold else 10)
    teams = {"fair": lambda: Fair("ann", "bob", "cid", max_turns=2)}
    for _ in range(2):
        async with DrSai(teams, database_url, settings=settings) as drsai:
            for _ in range(2):
                handle = await drsai.start("fair", "Go on.", thread_id="a thread")
                await handle.wait()
                said += [done.message.source for done in handle.transcript()]
    assert [name for name in said if name != "user"] == ["ann", "bob", "cid", "ann", "bob", "cid", "ann", "bob"]


class FairerManager(FairManager):
    durable_fields = ("_seen",)


def test_the_fields_of_base_classes_count() -> None:
    assert set(fields_of(FairerManager.__new__(FairerManager))) == {"_last", "_spoken", "_seen"}


class _Holder:
    durable_fields = ("_values",)

    def __init__(self) -> None:
        self._values = {"a": [1]}


def test_a_named_field_is_read_as_it_is() -> None:
    """What is stored of it is copied where it is stored (`cells`), once."""
    holder = _Holder()
    [field] = fields_of(holder).values()
    assert field.read(holder) is holder._values
