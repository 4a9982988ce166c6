"""The outcome of a run is what a program gets that has waited for it: AutoGen's messages, a `TeamResult`, or what went
wrong."""

from __future__ import annotations

from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, ModelClientStreamingChunkEvent
from pydantic import BaseModel

from drsai_backend.datamodel import RunStatus, TeamResult
from drsai_backend.datamodel.file import made_in
from drsai_backend.errors import RunFailed
from drsai_backend.runs.events import MessageDone, RunEnded, RunEvent, TextDelta
from drsai_backend.runs.feed.handle import Handle
from drsai_backend.teams.messages import dump_of


def message_of(event: RunEvent) -> BaseAgentEvent | BaseChatMessage | None:
    """An event as a message of AutoGen's; None: it is nothing that AutoGen's streams have."""
    if isinstance(event, TextDelta):
        return ModelClientStreamingChunkEvent(content=event.text, source=event.source, full_message_id=event.message_id)
    return event.message if isinstance(event, MessageDone) else None


def result_of(handle: Handle, end: RunEnded) -> TeamResult:
    """The result of a run that has ended. Raises RunFailed as `check_failure`."""
    check_failure(handle, end)
    messages = [dump_of(done.message) for done in handle.transcript()]
    return TeamResult(
        task_result={"messages": messages, "stop_reason": end.stop_reason},
        files=made_in(messages),
        usage=end.usage,
        duration=end.duration,
        thread_id=handle.thread_id,
        run_id=handle.run_id,
        status=end.status,
        input_request=end.input_request,
        queued_behind=end.queued_behind,
    ).with_output(_output(handle, end))


def check_failure(handle: Handle, end: RunEnded) -> None:
    """Raise RunFailed: the run ended as ERROR; `__cause__` is what was raised."""
    if end.status is RunStatus.ERROR:
        raise RunFailed(
            f"{end.error_message or 'the run failed'} (thread {handle.thread_id!r}, run {handle.run_id!r})",
            run_code=end.error_code,
            team=handle.team,
            agent=handle.failed_agent,
            thread_id=handle.thread_id,
            run_id=handle.run_id,
        ) from handle.failure


def _output(handle: Handle, end: RunEnded) -> BaseModel | None:
    """The structured content of the run's last chat message, if it is one."""
    said = (each.message for each in reversed(handle.transcript()) if each.shown or each.seq == end.shown)
    content = getattr(next(said, None), "content", None)
    return content if isinstance(content, BaseModel) else None
