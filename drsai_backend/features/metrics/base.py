"""The base of metrics is the list of all families: what is exported, under which names and labels, and what it
means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

Key: TypeAlias = tuple[str, ...]
"""A family's name and the values of its labels; of a histogram also the number of a bucket, or `sum`."""
OTHER: Final = "other"
"""Stands for the values of a label beyond its bound."""
MOST: Final[Mapping[str, int]] = {
    **dict.fromkeys(("team", "model"), 100),
    **dict.fromkeys(("tool", "tool_name"), 200),
    "tenant_id": 50,
    "error": 20,
}
"""How many values a label has at most, where clients and operators name them: the first ones that come. The values of
other labels are few by nature: routes, statuses, kinds."""
LONGEST: Final = 64
"""Characters of such a value."""
_QUICK: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_ANSWER: Final = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0)
_SLOW: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)


class Family(NamedTuple):
    """Metrics of one name.

    Attributes:
        name: of the family.
        labels: their names.
        text: what it is, in a line.
        buckets: of a histogram, the upper ends in seconds; beyond the last one is one more.
    """

    name: str
    labels: tuple[str, ...]
    text: str
    buckets: tuple[float, ...] = ()

    @property
    def kind(self) -> Literal["counter", "gauge", "histogram"]:
        """Counters and histograms are sums over the processes of one server; gauges are read of the database."""
        return "histogram" if self.buckets else "counter" if self.name.endswith("_total") else "gauge"


FAMILIES: Final = (
    Family(
        "drsai_requests_total",
        ("route", "method", "status"),
        "HTTP requests that are over, by the pattern of their path and the first digit of their status.",
    ),
    Family(
        "drsai_request_seconds",
        ("route", "method"),
        "How long requests took, to the last byte of their answers.",
        (*_QUICK, 30.0, 120.0),
    ),
    Family(
        "drsai_runs_ended_total",
        ("team", "status"),
        "Ends of runs, and of their parts up to a question or a pause, where they ran; `moved`: to another process.",
    ),
    Family(
        "drsai_run_seconds", ("team",), "How long runs took, or their parts, in the process that ended them.", _SLOW
    ),
    Family("drsai_recoveries_total", ("team",), "Runs that were resumed after their process was lost."),
    Family("drsai_turns_total", ("team",), "Turns that were stored, those of nested teams included."),
    Family("drsai_turn_seconds", ("team",), "Time from one stored turn of a run to the next one.", _ANSWER),
    Family(
        "drsai_first_token_seconds", ("team",), "Time from the start of a run to the first text of an answer.", _ANSWER
    ),
    Family(
        "drsai_model_calls_total",
        ("model", "kind"),
        "Model calls that were answered; `kind` is `run`, or what they are for beside runs.",
    ),
    Family(
        "drsai_model_call_seconds", ("model",), "How long model calls took until their answers were there.", _ANSWER
    ),
    Family("drsai_model_retries_total", ("model",), "Attempts of answered model calls beyond the first."),
    Family(
        "drsai_model_errors_total",
        ("model", "error"),
        "Model calls of runs that came to nothing, by the code of the error.",
    ),
    Family(
        "drsai_tokens_total",
        ("model", "type"),
        "Tokens of model calls: `prompt`, of these `cached`; `completion`, of these `reasoning`.",
    ),
    Family("drsai_cost_total", ("model", "currency"), "What model calls with a known price have cost."),
    Family("drsai_unpriced_calls_total", ("model",), "Model calls without a known price."),
    Family(
        "drsai_tool_calls_total", ("tool", "outcome"), "Calls of tools by agents that are over: `success` or `error`."
    ),
    Family("drsai_tool_call_seconds", ("tool",), "How long calls of tools took.", _SLOW),
    Family(
        "drsai_loop_lag_seconds",
        (),
        "How late the event loop of a process was, measured twice a second: what held it up.",
        _QUICK,
    ),
    Family(
        "drsai_database_seconds",
        (),
        "How long a process waited for a small read of the database, made every five seconds.",
        _QUICK,
    ),
    Family("drsai_database_errors_total", (), "Such reads that have failed."),
    Family(
        "agent_tasks_total",
        ("mode", "status", "tenant_id"),
        "Tasks of /api/v1/agent that are over: `success`, `failed`, `cancelled`.",
    ),
    Family("agent_task_duration_seconds", ("mode", "tenant_id"), "How long tasks of /api/v1/agent took.", _SLOW),
    Family(
        "agent_tool_calls_total",
        ("tool_name", "status"),
        "Calls of tools in tasks of /api/v1/agent: `success` or `error`.",
    ),
    Family(
        "drsai_runs",
        ("team", "status"),
        "Runs in the database that are not over, and those of the newest 10,000 that are.",
    ),
    Family("drsai_leases", ("state",), "Running runs whose lease is `held`, or `expired`: nobody runs them."),
    Family("drsai_workers", (), "Processes that run teams on the database, and live."),
    Family("drsai_queued_inputs", (), "Messages that wait for the run on their thread to end."),
    Family("drsai_queued_oldest_seconds", (), "For how long the oldest of them has waited."),
    Family("drsai_jobs", ("kind", "state"), "Jobs of the background: `due`, `later`, `taken`, or `failed` for good."),
    Family("drsai_jobs_oldest_seconds", (), "For how long the oldest job that is due has waited."),
    Family("drsai_webhooks_waiting", (), "Webhooks that have not arrived yet."),
    Family("drsai_webhooks_oldest_seconds", (), "For how long the oldest of them has waited."),
    Family("drsai_database_up", (), "1; 0 where the database could not be read for the numbers above."),
    Family("drsai_build_info", ("version",), "1, with the version of this package."),
)
BY_NAME: Final[Mapping[str, Family]] = {each.name: each for each in FAMILIES}


class Bounds:
    """Bounds of labels: what values they have had so far."""

    def __init__(self) -> None:
        self._seen: dict[str, set[str]] = {}
        self._known: set[Key] = set()
        """Keys of values within their bounds."""

    def key_of(self, name: str, *labels: str) -> Key:
        """Return the key of a metric, `OTHER` in the place of values beyond the bound. Further words are kept."""
        given = (name, *labels)
        if given in self._known:  # Nearly always.
            return given
        names = BY_NAME[name].labels
        key = (name, *map(self._bounded, names, labels), *labels[len(names) :])
        if key == given:
            self._known.add(key)
        return key

    def _bounded(self, label: str, value: str) -> str:
        if (most := MOST.get(label)) is None:
            return value
        seen = self._seen.setdefault(label, set())
        # Lone surrogates, which a model's broken output can hold, are no text.
        value = value[:LONGEST].encode(errors="replace").decode()
        if value not in seen and len(seen) >= most:
            return OTHER
        seen.add(value)
        return value


def bounded(sums: Iterable[tuple[Key, float]]) -> dict[Key, float]:
    """Return sums whose labels have no more values than they may, the first ones. Families of other releases are left
    out."""
    bounds = Bounds()
    found: dict[Key, float] = {}
    for (name, *labels), total in sums:
        if name in BY_NAME:
            key = bounds.key_of(name, *labels)
            found[key] = found.get(key, 0.0) + total
    return found
