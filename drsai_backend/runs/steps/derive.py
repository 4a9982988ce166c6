"""Derivation makes steps of the messages of a run and of what is recorded of its turn in flight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple, cast

from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.file import MessageFile, files_of
from drsai_backend.datamodel.run import KEPT
from drsai_backend.json_types import JsonObject
from drsai_backend.runs.steps.views import RunStep
from drsai_backend.runs.threads.queries import text_of
from drsai_backend.runs.threads.views import RunView
from drsai_backend.teams.messages import RECALLED, aside_of
from drsai_backend.teams.replay.steps import RECALLED as RECALLED_STEP
from drsai_backend.teams.replay.steps import call_step

CALLS: Final = "ToolCallRequestEvent"
_CODE: Final = "CodeGenerationEvent"
_THOUGHT: Final = "ThoughtEvent"
_NO_STEPS: Final = frozenset({"ToolCallSummaryMessage", "HandoffMessage"})
"""Chat messages that say what the step before them has brought about."""
_CUT: Final = "drsai.unfinished"
"""In the metadata of a message whose run was stopped before it was finished; see `teams.imported`."""


class MessageRow(NamedTuple):
    """A stored message of a run: its number, its dump, and whether it is shown."""

    seq: int
    config: JsonObject
    shown: bool | None


class RecordedStep(NamedTuple):
    """What an agent has done in the turn in flight, as `teams.replay.steps.Step`, and when that was stored."""

    agent: str
    step: str
    value: JsonObject
    created_at: datetime


class _Answer(NamedTuple):
    """An answer of a model: whose it is, what it used, and the number of its message; 0: none is stored yet."""

    source: str
    usage: JsonObject
    model: str | None
    seq: int = 0
    thought: str | None = None
    recalled: Sequence[str] = ()


def begins(kind: str, source: str, calls: int, shown: bool | None, *, used: bool) -> int:
    """Return how many steps a message begins: one for each call of a tool, one for what an agent says itself, or thinks
    where that is all of a model's answer, such as a plan.

    Args:
        kind: AutoGen's class of the message.
        calls: the calls in it, if it is a request for some.
        shown: whether a client is shown it, or it is what an agent says beside the answer; None: not known.
        used: whether it says what a model used for it. Of a thought beside calls or an answer, those say it.
    """
    if kind == CALLS:
        return calls
    if kind == _CODE:
        return 1
    if kind == _THOUGHT:
        return int(used)
    if kind.endswith("Event") or kind in _NO_STEPS:
        return 0
    return int(shown if shown is not None else source not in ("user", "system"))


def begun_by(row: MessageRow) -> int:
    """`begins`, of a message that was read."""
    kind = str(row.config.get("type", ""))
    calls = len(row.config["content"]) if kind == CALLS else 0
    used, shown = row.config.get("models_usage") is not None, True if aside_of(row.config) else row.shown
    return begins(kind, str(row.config.get("source", "")), calls, shown, used=used)


class Derivation:
    """Takes the messages of a run in order, and makes its steps.

    Args:
        run: whose they are.
        before: position of the last step before these messages.
    """

    def __init__(self, run: RunView, before: int = 0) -> None:
        self.steps: list[RunStep] = []
        self._run = run
        self._before = before
        self._thoughts: dict[str, str] = {}
        self._open: dict[tuple[str, str | None], RunStep] = {}
        self._last: datetime | None = run.started_at
        self._models = _models(run.calls or ())
        self._cut = False

    @property
    def open(self) -> list[RunStep]:
        """The steps whose calls have not come to their end."""
        return [*self._open.values()]

    @property
    def _position(self) -> int:
        return self._before + len(self.steps) + 1

    def take(self, row: MessageRow) -> None:
        """The next message."""
        config = row.config
        kind, source = str(config.get("type", "")), str(config.get("source", ""))
        now = _moment(config.get("created_at")) or self._last
        if kind == _THOUGHT:
            before = self._thoughts.get(source)
            self._thoughts[source] = text_of(config) if before is None else f"{before}\n{text_of(config)}"
            if begun_by(row):
                self._said(row, kind, source, now)
                self._last = now
            return  # When a step began is told by what was before its thought.
        if kind == CALLS:
            model = self._model(source, config.get("metadata"))
            usage: JsonObject = config.get("models_usage") or {}
            self._calls(_Answer(source, usage, model, row.seq, recalled=_recalled(config)), config["content"], now)
        elif kind == "ToolCallExecutionEvent":
            files = files_of(config)
            for result in cast("list[JsonObject]", config["content"]):
                self._result(source, result, now, files)
        elif kind == "CodeExecutionEvent":
            result: JsonObject = config.get("result") or {}
            failed = bool(result.get("exit_code"))
            self._result(source, {"content": result.get("output", ""), "is_error": failed}, now)
        elif begun_by(row):
            self._said(row, kind, source, now)
        self._last = now
        metadata: JsonObject = config.get("metadata") or {}
        limit = metadata.get("limit")
        if limit and self.steps and self.steps[-1].source == source:
            self.steps[-1].limit = str(limit)

    def _model(self, source: str, metadata: JsonObject | None) -> str | None:
        return (metadata or {}).get("model") or self._models.get(source)

    def _calls(self, answer: _Answer, calls: Iterable[JsonObject], now: datetime | None) -> list[RunStep]:
        """An answer that calls tools."""
        first, source, usage = self._position, answer.source, answer.usage
        made: list[RunStep] = []
        for call in calls:
            is_first = self._position == first
            step = RunStep(
                position=self._position,
                run_id=self._run.run_id,
                source=source,
                thought=(answer.thought or self._thoughts.pop(source, None)) if is_first else None,
                tool=call["name"],
                call_id=call["id"],
                input=call["arguments"],
                is_over=False,
                is_stored=answer.seq > 0,
                with_step=None if is_first else first,
                started_at=self._last if is_first else now,
                prompt_tokens=usage.get("prompt_tokens") if is_first else None,
                completion_tokens=usage.get("completion_tokens") if is_first else None,
                model=answer.model,
                recalled=[*answer.recalled] if is_first else [],
                seq=answer.seq,
            )
            self.steps.append(step)
            self._open[source, call["id"]] = step
            made.append(step)
        return made

    def _result(self, source: str, result: JsonObject, now: datetime | None, files: Sequence[MessageFile] = ()) -> None:
        step = self._open.pop((source, result.get("call_id")), None)
        if step is not None:
            step.observation = str(result.get("content", ""))
            step.is_error = bool(result.get("is_error"))
            step.finished_at, step.is_over = now, True
            step.files = [file for file in files if file.call_id == step.call_id]

    def _said(self, row: MessageRow, kind: str, source: str, now: datetime | None) -> None:
        config = row.config
        usage: JsonObject = config.get("models_usage") or {}
        is_code = kind == _CODE
        step = RunStep(
            position=self._position,
            run_id=self._run.run_id,
            source=source,
            thought=self._thoughts.pop(source, None),
            is_over=not is_code,
            started_at=self._last,
            finished_at=None if is_code else now,
            prompt_tokens=usage.get("prompt_tokens"),
            completion_tokens=usage.get("completion_tokens"),
            model=self._model(source, config.get("metadata")),
            recalled=_recalled(config),
            seq=row.seq,
        )
        self._cut = _CUT in (config.get("metadata") or {})
        if is_code:
            step.tool, step.input = "code", "\n\n".join(str(each.get("code", "")) for each in config["code_blocks"])
            self._open[source, None] = step
        elif kind != _THOUGHT:
            step.text = text_of(config)
        self.steps.append(step)

    def take_recorded(self, recorded: Iterable[RecordedStep]) -> None:
        """Take, after all messages, the calls of the turn in flight, with what has come of them."""
        rows = [*recorded]
        results = {(row.agent, row.step): row for row in rows}
        # The calls of a turn that is run once more are told by messages.
        answers = [row for row in rows if _is_answer(row) and (row.agent, row.step + KEPT) not in results]
        for row in sorted(answers, key=lambda each: (each.created_at, each.agent, int(each.step[1:]))):
            source = row.agent.rpartition("/")[2]
            value, now = row.value, row.created_at
            thought = "\n".join(value[name] for name in ("reasoning", "thought") if value.get(name)) or None
            shown = results.get((row.agent, RECALLED_STEP))
            names: Sequence[str] = () if shown is None else shown.value.get("names", ())
            answer = _Answer(source, value.get("usage") or {}, self._model(source, value), 0, thought, names)
            for step in self._calls(answer, value["content"], now):
                found = results.get((row.agent, call_step(row.step, step.call_id)))
                if found is not None:
                    result = _result_of(found.value)
                    self._result(source, {**result, "call_id": step.call_id}, found.created_at, files_of(found.value))
                    now = max(now, found.created_at)
            self._last = now

    def end(self) -> None:
        """Take, after all of it, what the end of the run makes of its last step, or the step that says how it ended."""
        run = self._run
        if not run.status.is_final:
            return
        for step in self._open.values():
            step.is_over = True
        if run.status is RunStatus.COMPLETED:
            return
        why = run.error_message or run.stop_reason or f"The run ended as {run.status.value}."
        flagged = [*self._open.values()] or (self.steps[-1:] if self._cut else [])
        if not flagged:
            flagged = [RunStep(position=self._position, run_id=run.run_id, source=None, started_at=self._last)]
            self.steps += flagged
        for step in flagged:
            step.is_error, step.error, step.finished_at = True, why, run.finished_at


def _recalled(config: JsonObject) -> list[str]:
    """Return the names of what a model was shown beside the thread for its answer, which is a message's dump."""
    metadata: JsonObject = config.get("metadata") or {}
    return str(metadata.get(RECALLED, "")).split()


def _is_answer(row: RecordedStep) -> bool:
    """Whether a recorded step is an answer of a model that calls tools."""
    return row.step[:1] == "m" and row.step[1:].isdigit() and isinstance(row.value.get("content"), list)


def _result_of(value: JsonObject) -> JsonObject:
    """The result of a tool call, as its step was recorded: the dump of an AutoGen `ToolResult`."""
    result: JsonObject = value.get("result") or {}
    parts = (text_of({"content": [part]}) for part in result.get("result", ()))
    return {"content": "\n".join(parts), "is_error": result.get("is_error", False)}


def _models(calls: Iterable[Mapping[str, object]]) -> dict[str, str]:
    """Return, by agent, the model that has given all of its answers, as far as they are known."""
    found: dict[str, set[str]] = {}
    for call in calls:
        if model := call.get("model"):
            found.setdefault(str(call.get("agent", "")).rpartition("/")[2], set()).add(str(model))
    return {agent: next(iter(models)) for agent, models in found.items() if len(models) == 1}


def _moment(text: object) -> datetime | None:
    return datetime.fromisoformat(text) if isinstance(text, str) else None
