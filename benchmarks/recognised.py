"""What it costs a chat request to be told apart from housekeeping of a chat window and from a client's repeat, and to
have its history recognised."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from benchmarks.report import Section
from drsai_backend.access.principal import Principal
from drsai_backend.runs.history.digest import Histories, seed_of
from drsai_backend.runs.intake.request_digest import RequestDigests
from drsai_backend.runs.requests import Admitted, InputMessage
from drsai_backend.runs.side_calls.housekeeping import Housekeeping
from drsai_backend.teams.client_tools.definitions import ClientTool, ClientTools
from tests.support.asks import admitted

_LIMIT = 300.0
_TEXT = "x" * 200
_WINDOW = "### Task:\nRespond to the user query using the provided context.\n" + 200 * _TEXT + "\nWhat is it?"


_TOOLS = ClientTools(tuple(ClientTool(f"tool_{number}", _TEXT, {"type": "object"}) for number in range(36)))


def _conversation(count: int, last: str = _TEXT) -> Admitted:
    """As a body brings it: no text is an object that was seen before."""
    roles = ("user", "assistant")
    texts = [*(f"{number:>200}" for number in range(count - 1)), f"{last} "[:-1]]
    messages = [InputMessage(roles[number % 2], text) for number, text in enumerate(texts)]  # pyright: ignore[reportArgumentType]
    return admitted("crew", messages, thread_id="t", client_tools=_TOOLS)


def _microseconds(call: Callable[[Admitted], object], requests: list[Admitted]) -> float:
    found: list[float] = []
    for request in requests:
        start = time.perf_counter()
        call(request)
        found.append((time.perf_counter() - start) * 1e6)
    return median(found)


def measure(times: int) -> Section:
    """Time all three for conversations of several lengths, which come `times` times each."""
    section = Section(
        "Telling housekeeping, repeats and histories apart",
        "Microseconds of processor a chat request, with 36 tools of the client's, after the first one of its\n"
        "conversation. *Documents*: a window's prompt around what its documents hold, 40,000 characters, which begins\n"
        "like housekeeping and is none.",
        ("request", "housekeeping", "repeat", "history"),
    )
    rule, digests, histories, worst = Housekeeping(), RequestDigests(), Histories(), 0.0
    seed = seed_of(Principal().owner, "crew")
    calls: tuple[Callable[[Admitted], object], ...] = (
        lambda request: rule.kind_of(request.ask.messages),
        digests.of,
        lambda request: histories.digest(seed, request.ask.messages),
    )
    conversations = [(f"{count} messages", count, _TEXT) for count in (1, 11, 1001)]
    for name, count, last in (*conversations, ("documents", 1, _WINDOW)):
        spent = [_microseconds(call, [_conversation(count, last) for _ in range(times)]) for call in calls]
        worst = max(worst, sum(spent))
        section.rows.append((name, *(f"{each:.1f}" for each in spent)))
    text = "recognising housekeeping, repeats and histories, µs a request"
    section.at_most(text, _LIMIT, worst, f"{worst:.0f}")
    return section
