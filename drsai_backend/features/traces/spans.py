"""Spans are made of what requests and runs tell: request → run → turn → model call and tool call."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Final, cast

from opentelemetry import context as contexts
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import SpanKind, Status, StatusCode, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from drsai_backend import __version__, log_context
from drsai_backend.datamodel import RunStatus
from drsai_backend.features.traces import names
from drsai_backend.runs.events import (
    MessageDone,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    RunEnded,
    RunStarted,
    TurnsStored,
)
from drsai_backend.teams.replay.steps import ToolFinished, ToolStarted

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span

    from drsai_backend.config import Settings
    from drsai_backend.runs.events import WatchedEvent
    from drsai_backend.runs.feed.live_run import LiveRun

log = logging.getLogger("drsai.traces")

_LAST_SECONDS: Final = 2.0
"""How long a process that ends waits for the collector."""
_MOST_TEXTS: Final = 32
_LONGEST: Final = 8_192
"""Messages of a run, and characters of a text, that a span has at most."""
_CARRIER: Final = TraceContextTextMapPropagator()


class _Ids(RandomIdGenerator):
    """Random ids. The trace of a run that belongs to none has one that is made of the run's, so that all workers which
    take it up make the same."""

    run_id: str | None = None

    def generate_trace_id(self) -> int:
        if self.run_id is None:
            return super().generate_trace_id()
        return int.from_bytes(sha256(self.run_id.encode()).digest()[:16])


@dataclass(slots=True)
class _Course:
    """A run under way.

    Attributes:
        run: its span.
        began: when the turn under way began, in nanoseconds.
        turn: the turn's span, once something has happened in it.
        calls: spans of model calls and tool calls under way, and what the context was before them; a tool call by its
            agent and id, a model call by its span's.
        heard, said: the newest texts of the user and of the answer.
    """

    run: Span
    began: int = field(default_factory=time.time_ns)
    turn: Span | None = None
    calls: dict[object, tuple[Span, Context]] = field(default_factory=dict[object, "tuple[Span, Context]"])
    heard: deque[str] = field(default_factory=lambda: deque[str](maxlen=_MOST_TEXTS))
    said: deque[str] = field(default_factory=lambda: deque[str](maxlen=_MOST_TEXTS))


class Spans:
    """The spans of a process, which a thread sends in batches: what does not fit into its queue is lost."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._runs: dict[str, _Course] = {}
        self._ids = _Ids()
        ours = Resource({"service.name": "drsai", "service.version": __version__})
        # Not the program's provider: AutoGen, which tells of the same calls, would use that, too.
        self._provider = TracerProvider(
            resource=ours.merge(OTELResourceDetector().detect()), id_generator=self._ids, shutdown_on_exit=False
        )
        # The SDK reads all else out of the environment; of this, a file `.env` may have told, too.
        is_told = settings.otlp_endpoint is not None and "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" not in os.environ
        exporter = OTLPSpanExporter(f"{settings.otlp_endpoint}/v1/traces" if is_told else None)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("drsai_backend", __version__)

    async def close(self) -> None:
        """Send what is left, as far as the collector takes it soon."""
        loop, sent = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            with suppress(RuntimeError):  # The loop has been closed meanwhile.
                loop.call_soon_threadsafe(sent.set)

        threading.Thread(target=shut_down, daemon=True).start()
        try:
            async with asyncio.timeout(_LAST_SECONDS):
                await sent.wait()
        except TimeoutError:
            log.warning("the last spans are lost: the collector did not take them within %g s", _LAST_SECONDS)

    # --- requests -----------------------------------------------------------------------------------------------------

    @contextmanager
    def request(self, method: str, headers: Mapping[str, str]) -> Generator[Span]:
        """Surround a request. `headers`: its `traceparent` and `tracestate`."""
        # Of the program that has mounted the application, which has looked at the headers itself.
        is_inside = get_current_span().get_span_context().is_valid
        parent = contexts.get_current() if is_inside else _CARRIER.extract(headers)
        span = self._tracer.start_span(method, parent, SpanKind.SERVER, {names.METHOD: method})
        if (request_id := log_context.current_request()) is not None:
            span.set_attribute(names.REQUEST_ID, request_id)
        context = set_span_in_context(span)
        token, belongs = contexts.attach(context), log_context.trace.set(_header_of(context))
        try:
            yield span
        finally:
            span.end()
            contexts.detach(token)
            log_context.trace.reset(belongs)

    # --- runs ---------------------------------------------------------------------------------------------------------

    def run_told(self, run: LiveRun, event: WatchedEvent) -> None:
        """Make spans of what a run tells."""
        if isinstance(event, RunStarted):
            self._started(run, event)
        elif (course := self._runs.get(run.run_id)) is not None:
            match event:
                case ModelAsked() | ToolStarted():
                    self._begun(course, event)
                case ModelAnswered() | ModelFailed() | ToolFinished():
                    self._over(course, event)
                case TurnsStored():
                    self._turn_over(course)
                case MessageDone() if self._settings.traces_content:
                    texts = course.heard if event.message.source == "user" else course.said
                    if event.shown or texts is course.heard:
                        texts.append(event.message.to_text()[:_LONGEST])
                case RunEnded():
                    self._ended(run, course, event)
                case _:
                    pass

    def _started(self, run: LiveRun, event: RunStarted) -> None:
        attributes = {
            names.OPERATION: names.INVOKE_AGENT,
            names.AGENT: run.team,
            names.CONVERSATION: run.name.thread_id,
            names.RUN_ID: run.run_id,
            names.ATTEMPT: event.attempt,
        }
        whose = self._settings.logged(run.name.tenant, run.name.user_id)
        attributes |= {names.WHOSE[name]: value for name, value in whose.items()}
        trace = log_context.trace.get()
        parent = contexts.get_current() if trace is None else _CARRIER.extract({"traceparent": trace})
        self._ids.run_id = run.run_id
        span = self._tracer.start_span(f"{names.INVOKE_AGENT} {run.team}", parent, attributes=attributes)
        self._ids.run_id = None
        self._runs[run.run_id] = _Course(span)
        context = set_span_in_context(span)
        contexts.attach(context)
        log_context.trace.set(_header_of(context))

    def _turn(self, course: _Course) -> Span:
        """The span of the turn under way."""
        if course.turn is None:
            inside = set_span_in_context(course.run)
            course.turn = self._tracer.start_span("turn", inside, start_time=course.began)
        return course.turn

    def _begun(self, course: _Course, event: ModelAsked | ToolStarted) -> None:
        """A call begins, in the context that it is made in: what it asks of others belongs to it."""
        before, current = contexts.get_current(), _id_of(get_current_span())
        # A model may be asked by a tool. The span need not be the same object: AutoGen has put others that mean it.
        is_inside = any(_id_of(span) == current for span, _ in course.calls.values())
        parent = before if is_inside else set_span_in_context(self._turn(course))
        if isinstance(event, ModelAsked):
            span = self._tracer.start_span(names.CHAT, parent, SpanKind.CLIENT, {names.OPERATION: names.CHAT})
            course.calls[_id_of(span)] = span, before
        else:
            attributes = {
                names.OPERATION: names.EXECUTE_TOOL,
                names.TOOL: event.name,
                names.CALL_ID: event.call_id,
                names.AGENT: event.source,
            }
            if self._settings.traces_content:
                attributes[names.ARGUMENTS] = event.arguments[:_LONGEST]
            span = self._tracer.start_span(f"{names.EXECUTE_TOOL} {event.name}", parent, attributes=attributes)
            course.calls[event.source, event.call_id] = span, before
        contexts.attach(set_span_in_context(span))

    def _over(self, course: _Course, event: ModelAnswered | ModelFailed | ToolFinished) -> None:
        """A call is over, in the context that it was begun in."""
        key = (event.source, event.call_id) if isinstance(event, ToolFinished) else _id_of(get_current_span())
        span, before = course.calls.pop(key, (None, None))
        if span is None or before is None:  # It was never made, as its run may not make it.
            return
        match event:
            case ModelAnswered(record):
                found = {names.CALL[name]: value for name, value in record.items() if name in names.CALL}
                span.set_attributes(cast("dict[str, str | int]", found))
                span.update_name(f"{names.CHAT} {record.get('model', '')}".strip())
            case ModelFailed(model, code):
                span.set_attribute(names.MODEL, model)
                span.update_name(f"{names.CHAT} {model}".strip())
                _failed(span, code)
            case ToolFinished():
                if self._settings.traces_content:
                    span.set_attribute(names.RESULT, event.result[:_LONGEST])
                if event.is_error:
                    _failed(span, "tool_error")
        span.end()
        contexts.attach(before)

    def _turn_over(self, course: _Course) -> None:
        """End the turn under way, and what of it was cancelled."""
        for span, _ in course.calls.values():
            span.end()
        self._turn(course).end()
        course.calls, course.turn, course.began = {}, None, time.time_ns()

    def _ended(self, run: LiveRun, course: _Course, event: RunEnded) -> None:
        del self._runs[run.run_id]
        if course.turn is not None:
            self._turn_over(course)
        span = course.run
        span.set_attribute(names.ENDED_AS, "moved" if event.status is RunStatus.RUNNING else event.status.value)
        if event.stop_code is not None:
            span.set_attribute(names.STOPPED_BY, event.stop_code)
        span.set_attributes({names.USAGE[name]: count for name, count in event.used.items() if name in names.USAGE})
        for name, role, texts in ((names.INPUT, "user", course.heard), (names.OUTPUT, "assistant", course.said)):
            if texts:
                made = [{"role": role, "parts": [{"type": "text", "content": text}]} for text in texts]
                span.set_attribute(name, json.dumps(made, ensure_ascii=False))
        if event.status is RunStatus.ERROR:
            _failed(span, event.error_code or "error")
        span.end()
        # What begins next on the thread begins in this task.
        contexts.attach(contexts.Context())
        log_context.trace.set(None)


def _id_of(span: Span) -> int:
    return span.get_span_context().span_id


def _failed(span: Span, code: str) -> None:
    span.set_attribute(names.ERROR, code)
    span.set_status(Status(StatusCode.ERROR))


def _header_of(context: Context) -> str | None:
    """The header `traceparent` for what is done in a context; None: nothing is traced there."""
    headers: dict[str, str] = {}
    _CARRIER.inject(headers, context)
    return headers.get("traceparent")
