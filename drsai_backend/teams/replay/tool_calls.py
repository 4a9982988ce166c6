"""The tool calls of an agent are recorded, replayed, approved by a person, and ended in good order when one of them
asks: here is what they know of the run, and which of them its model has to make.

`RecordedWorkbench` sees each `Call` as the agent makes it, and hands it to the agent's `ToolCalls`.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import product
from typing import TypeAlias, cast

from autogen_core import CancellationToken
from autogen_core.tools import Tool, ToolResult, ToolSchema

from drsai_backend.access.principal import Scope
from drsai_backend.access.switchboard import Switchboard
from drsai_backend.agents.tool_tasks import call_siblings, calling
from drsai_backend.database import patiently
from drsai_backend.database.files import FileInfo, sent_files
from drsai_backend.datamodel import Thread
from drsai_backend.datamodel.file import files_of, to_note
from drsai_backend.datamodel.owner import Owner, ThreadName
from drsai_backend.errors import FileTooLarge, NotFound, ToolError
from drsai_backend.files import Files
from drsai_backend.files.store import OF_TOOLS, noted
from drsai_backend.json_types import JsonObject
from drsai_backend.models.calls.requests import tool_name
from drsai_backend.teams.client_tools.definitions import ClientTools
from drsai_backend.teams.context import RunContext
from drsai_backend.teams.replay.call import END, Call, make_call
from drsai_backend.teams.replay.steps import (
    ASKED,
    RETURNED,
    AgentSteps,
    CallName,
    Step,
    ToolFinished,
    ToolPartial,
    ToolStarted,
)
from drsai_backend.teams.suspension import Branch, InputBroker, InputRequired, StopRequested, current_branch
from drsai_backend.tools import Approval, ToolRun, check_approvers
from drsai_backend.tools.results import FinalResult, to_text
from drsai_backend.tools.running import MAX_OUTPUT, FileRef, Lazy

ToolOffering: TypeAlias = Callable[[JsonObject], JsonObject]


class ToolCalls:
    """All tool calls of one agent.

    Args:
        steps: records them.
        broker: asks persons.
        run: what they have in common.
        switches: which of them are not made.
    """

    def __init__(
        self, steps: AgentSteps, broker: InputBroker, run: ToolRun | None = None, switches: Switchboard | None = None
    ) -> None:
        self.steps = steps
        steps.has_tools = True
        self._run_of = run or ToolRun()
        self._switches = switches or Switchboard()
        self._turn = steps.turn
        self.broker = broker
        self._busy: set[asyncio.Task[None]] = set()
        self._asking: list[asyncio.Task[None]] = []
        self._changed: asyncio.Future[None] | None = None

    async def stream(self, call: Call) -> AsyncGenerator[object, None]:
        """Yield what the tool shows, then its `ToolResult`, which is recorded by then; or the recorded one alone.

        Raises:
            InputRequired: a person has to approve the call, or to say what becomes of one that may have been made
                before a crash, or is asked by the tool. The agent's other calls have come to their end.
            StopRequested: he wants the run to stop.
            ReplayMismatch: the recorded result is one of another call.
            CallOver: the call was not made before the end of the one that its agent works for.
        """
        name = self.steps.name_call(call.id, call.name)
        over = self._returned(call, name)
        if over is None and (recorded := await self._recorded(call, name)) is not None:
            if isinstance(recorded, FinalResult):
                self.steps.complete(call.id, call.name)
            yield recorded
            return
        with self.calling(call.token) as task:
            made, result = await self._decide(call, name, task)
            if result is None and self._switches.off:
                result = self._refused(made)
            if result is None:
                start = await self._start(made, name, call.approval)
                try:
                    async for item in self._run(made, name, is_over=over is not None):
                        if isinstance(item, ToolResult):
                            result = item
                        else:
                            yield item
                except InputRequired as question:
                    question.caught = True
                    if start:
                        self._turn.keep(lambda: Step(self.steps.path, f"{name.step}?{start}", "", {}))
                    await self.wait_for_others(task)
                    raise self.broker.report(question) from None
                self._turn.check()
                result = over or result
                assert result is not None, "a workbench ends with a result"
                self._show_end(call, result)
            await self._record(call, name, result)
            if isinstance(result, FinalResult):
                self.steps.complete(call.id, call.name)
            yield result

    def _refused(self, call: Call) -> ToolResult | None:
        """Return the result of a call of a tool that is switched off; None: it is on."""
        context = self._run_of.get(RunContext)
        refusal = self._switches.find("tool", call.name, "" if context is None else context.principal.tenant)
        return None if refusal is None else call.said(refusal.message, is_error=True)

    @contextmanager
    def calling(self, token: CancellationToken | None) -> Generator[asyncio.Task[None]]:
        """One call of the agent, in the current task: its other calls that ask somebody wait for this one's end."""
        task: asyncio.Task[None] | None = asyncio.current_task()
        assert task is not None
        self._busy.add(task)
        try:
            # The agent expects a workbench to raise nothing, and would wait for ever.
            with calling(token):
                yield task
        finally:
            self._busy.discard(task)
            if task in self._asking:
                self._asking.remove(task)
            self._wake()

    # --- the record ---------------------------------------------------------------------------------------------

    async def _recorded(self, call: Call, name: CallName) -> ToolResult | None:
        if name.step is None or not name.replayed:
            return None
        value = self._turn.replay(self.steps.path, name.step, call.digest)
        if value is None:
            return None
        if "state" in value and call.keeper is not None:
            # It was not called in this process: bring it to where it was. The latest of several calls counts.
            owner = id(call.keeper.owner)
            if self._turn.states.get(owner, -1) < value["number"]:
                self._turn.states[owner] = value["number"]
                await call.keeper.load_state(value["state"])
        if files := files_of(value):
            self._turn.files[self.steps.source, call.id] = files
        kind = FinalResult if "completes" in value["result"] else ToolResult
        result = kind.model_validate(value["result"])
        if call.tool.options.cites:
            self._turn.note_passages(self.steps.source, result.to_text())
        return result

    def _returned(self, call: Call, name: CallName) -> ToolResult | None:
        """Return the recorded result of a call that is made again, as agents have taken part in it."""
        if not (name.replayed and call.runs_agents):
            return None
        value = self._turn.replay(self.steps.path, f"{name.step}{RETURNED}")
        return None if value is None else ToolResult.model_validate(value["result"])

    async def _record(self, call: Call, name: CallName, result: ToolResult) -> None:
        if call.tool.options.cites:
            self._turn.note_passages(self.steps.source, result.to_text())
        if name.step is None:
            return
        if call.runs_agents:
            # Its agents must take part when the turn is repeated, for they have states. What they did is recorded.
            self.note_result(name, result)
            await self._turn.flush()
            return
        value: JsonObject = {"result": result.model_dump(mode="json")}
        if files := self._turn.files.get((self.steps.source, call.id)):
            value["metadata"] = to_note(files)  # As the message will have them.
        if call.keeper is not None:
            self._turn.saved += 1
            self._turn.states[id(call.keeper.owner)] = self._turn.saved
            value |= {"state": dict(await call.keeper.save_state()), "number": self._turn.saved}
        await self._turn.save(Step(self.steps.path, name.step, call.digest(), value))

    def note_result(self, name: CallName, result: ToolResult) -> None:
        """Keep the result of a call that is made again where the turn is repeated."""
        step = Step(self.steps.path, f"{name.step}{RETURNED}", "", {"result": result.model_dump(mode="json")})
        if name.step is not None and self._turn.replay(step.agent, step.step) is None:
            self._turn.keep(lambda: step)

    def _starts(self, name: CallName, approval: Approval | None) -> int:
        """Return how often a call was started according to the record. The first time of one that nobody had to approve
        is not recorded, and included."""
        starts = 1 if approval is None else 0
        while self._turn.replay(self.steps.path, f"{name.step}!{starts + 1}") is not None:
            starts += 1
        return starts

    async def _start(self, call: Call, name: CallName, approval: Approval | None) -> int:
        """Record that a call starts, where that cannot be told from the model's answer alone. `approval`: that of the
        call as the model has made it. Returns which start of the call it is; 0 where nobody needs to know."""
        start = 0
        if name.step is not None and not call.repeatable:
            start = 1
            if name.replayed:
                start += self._starts(name, approval)
                await self._turn.save(Step(self.steps.path, f"{name.step}!{start}", "", {}))
        if self._turn.on_tool is not None:
            self._turn.on_tool(ToolStarted(self.steps.source, call.id or "", call.name, call.written))
        return start

    def _tool_run(self, call: Call, name: CallName) -> ToolRun:
        call_id, tool_name = call.id or "", call.name

        def emit(partial: object) -> None:
            if self._turn.on_tool is not None:
                text = to_text(partial)[: self._run_of.max_output]
                self._turn.on_tool(ToolPartial(self.steps.source, call_id, tool_name, text))

        numbers = itertools.count()

        def ask(
            prompt: str,
            *,
            choices: Sequence[str] | None = None,
            deadline: datetime | timedelta | None = None,
            by: str | None = None,
            not_by: str | None = None,
        ) -> str:
            check_approvers(by, not_by)
            # By the call, as another call of the same answer may ask, too, and in another order the next time.
            return self.broker.ask(
                self.steps.source,
                prompt,
                key=f"{name.key}@{next(numbers)}",
                choices=choices,
                deadline=deadline,
                by=by,
                not_by=not_by,
            )

        context = self._run_of.get(RunContext)
        run = replace(self._run_of, agent=self.steps.path, call_id=call_id, emit=emit, ask=ask)
        if context is None:
            return run
        asker = context.principal.owner
        run.thread = thread = (context.owner or asker).thread(context.thread_id)
        if context.files is not None:

            def keep(file: FileInfo) -> None:
                self._turn.files[self.steps.source, call.id].append(noted(file, call_id))

            made = f"{context.run_id}/{self._turn.number()}/{name.key}"
            files = RunFiles(context.files, thread, asker, made, keep)
            run.files, run.given = files, files.given
        return run

    def _show_end(self, call: Call, result: ToolResult) -> None:
        if self._turn.on_tool is not None:
            text = result.to_text(replace_image="[image]")
            self._turn.on_tool(ToolFinished(self.steps.source, call.id or "", call.name, text, result.is_error))

    # --- a person's part ----------------------------------------------------------------------------------------

    async def _decide(self, call: Call, name: CallName, task: asyncio.Task[None]) -> tuple[Call, ToolResult | None]:
        """The call that is to be made, or the result where none is."""
        made, approval, key = call, call.approval, name.key
        if approval is not None and name.step is not None and self.broker.find(key) is None and not name.replayed:
            self._turn.keep(lambda: Step(self.steps.path, f"{name.step}{ASKED}", "", {}))
        while approval is not None:
            answer = await self._answer(self._approval(made, approval, key, name), task)
            if answer["decision"] == "deny":
                reason = answer.get("reason") or "no reason was given"
                return call, call.said(f"The call was denied: {reason}", is_error=True)
            if answer["decision"] == "approve":
                break
            made, key = replace(call, arguments=answer["arguments"]), f"{key}~"
            # Who has changed the arguments has approved them, but in nobody else's place.
            changed, seen = made.approval, (approval.by, approval.not_by)
            approval = None if changed is None or (changed.by, changed.not_by) == seen else changed
        if name.replayed and name.step is not None and not call.repeatable:
            starts = self._starts(name, call.approval)
            ended = self._turn.replay(self.steps.path, f"{name.step}?{starts}") is not None
            if starts and not ended:
                return made, await self._retry(made, name, starts, task)
        return made, None

    def _approval(self, call: Call, approval: Approval, key: str, name: CallName) -> InputRequired:
        known = (self._turn.replay(self.steps.path, f"{name.step}{each}") for each in (ASKED, "!1"))
        # The process may have died before it asked, or in the call, where nobody had to approve that then.
        in_doubt = name.replayed and not call.repeatable and not any(each is not None for each in known)
        again = ", and may have called it already, before the run was interrupted" if in_doubt else ""
        return InputRequired(
            self.steps.source,
            f"{self.steps.source} wants to call {call.name} with {call.written}{again}. Is that approved?",
            key=key,
            type="approval",
            kind="approval",
            choices=["approve", "deny", "edit"],
            deadline=approval.deadline,
            by=approval.by,
            not_by=approval.not_by,
            tool=self._shown(call),
        )

    async def _retry(self, call: Call, name: CallName, starts: int, task: asyncio.Task[None]) -> ToolResult | None:
        """Return what a person gives as the result of a call that may have been made; None to make it once more."""
        question = InputRequired(
            self.steps.source,
            f"The run was interrupted when {self.steps.source} may have called {call.name} with {call.written}; the "
            "result is not known. Run the call again, give its result, or stop?",
            key=f"{name.key}!{starts}",
            type="approval",
            kind="tool_retry",
            choices=["run", "result", "stop"],
            tool=self._shown(call),
        )
        answer = await self._answer(question, task)
        if answer["decision"] == "stop":
            raise self.broker.end(StopRequested(f"Stopped, as the outcome of a call of {call.name} is not known."))
        return call.said(str(answer["content"])) if answer["decision"] == "result" else None

    async def _answer(self, question: InputRequired, task: asyncio.Task[None]) -> JsonObject:
        assert question.key is not None
        answer = self.broker.find(question.key)
        if answer is None:
            await self.wait_for_others(task)
            raise self.broker.report(question)
        return answer

    def _shown(self, call: Call) -> JsonObject:
        return {"name": call.name, "arguments": call.shown, "call_id": call.id}

    # --- beside others ------------------------------------------------------------------------------------------

    async def _run(self, call: Call, name: CallName, *, is_over: bool) -> AsyncGenerator[object, None]:
        """Make the call, in a task of its own, so that a question in it ends nothing else."""
        branch = Branch(current_branch.get(), call=name.key, is_over=is_over)
        branch.task = task = asyncio.create_task(make_call(call, self._tool_run(call, name), call.token, branch))
        task.add_done_callback(call.ended)
        try:
            while (item := await call.items.get()) is not END:
                if branch.question is None:
                    yield item
        finally:
            if not task.done():
                task.cancel()
            branch.task = None  # Its context has the branch: a cycle.
        if branch.question is not None:
            raise branch.question
        task.result()

    async def wait_for_others(self, task: asyncio.Task[None]) -> None:
        """Wait until the agent's other calls have ended, but for those that wait for a person too: the first of these
        goes first."""
        self._asking.append(task)
        self._wake()
        while True:
            others = {each for each in self._busy | call_siblings(task) if not each.done()}.difference(self._asking)
            if not others and self._asking[0] is task:
                return
            if self._changed is None:
                self._changed = asyncio.get_running_loop().create_future()
            await asyncio.wait({*others, self._changed}, return_when=asyncio.FIRST_COMPLETED)

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None


def tool_run_of(agent: object, context: RunContext, cache: dict[object, object]) -> ToolRun:
    """Return what the calls of an agent's tools have in common. `cache` is that of the run."""
    principal = context.principal

    def allows(scope: str) -> bool:
        # A scope that the server does not know is a role, which applications name.
        return principal.may(Scope(scope)) if scope in set(Scope) else scope in principal.roles

    async def thread() -> object:
        name = (context.owner or principal.owner).thread(context.thread_id)
        found = await context.db_manager.get(Thread, name._asdict(), load_messages=False, load_state=False)
        if not found:
            raise ToolError("The thread of this run is not stored.")
        return found[0]

    more: Mapping[type, object] = getattr(agent, "tool_provided", {})
    return ToolRun(
        provided={
            RunContext: context,
            type(principal): principal,
            type(context.db_manager): context.db_manager,
            Thread: Lazy(thread),
            **more,
        },
        allows=allows,
        cache=cache,
        overrides=getattr(agent, "dependency_overrides", {}),
        middleware=getattr(agent, "tool_middleware", ()),
        max_output=MAX_OUTPUT if context.settings is None else context.settings.max_tool_output,
        settings=context.settings,
        asker=f"{principal.tenant}/{principal.user_id}",
    )


def choosing(
    agent: object, steps: AgentSteps, offer: ToolOffering | None, asked: ClientTools | None = None
) -> ToolOffering | None:
    """`offer` with the choice among the agent's own tools in it: what the request has `asked`, else the agent's
    `tool_choice`. One that has to be called is so until a call was made: the answer after its result is free."""
    if asked is None:
        choice = getattr(agent, "tool_choice", "auto")
        if choice == "auto":
            return offer
        asked = ClientTools((), choice) if choice in ("none", "required") else ClientTools((), "required", (choice,))
    mode, only = asked.choice, asked.only

    def offered(options: JsonObject) -> JsonObject:
        options = options if offer is None else offer(options)
        tools = cast("Sequence[Tool | ToolSchema]", options.get("tools") or ())
        if not tools or "tool_choice" in options:
            return options
        if mode == "none":
            return {**options, "tool_choice": "none"}
        if mode == "required" and steps.has_called:
            return options
        named = [tool for tool in tools if only is None or tool_name(tool) in only]
        if not named:
            raise ToolError(f"tool_choice={' or '.join(only or ())!r}: the agent has no tool of that name")
        return {**options, "tools": named, "tool_choice": mode}

    return offered


class RunFiles:
    """Keeps the files of one tool call. A call that is repeated after its process died keeps the same files again.

    Args:
        files: those of the database.
        thread: whose owner's the files are that are kept.
        asker: who asks in the run.
        call: names the call in all of the database: run, turn, agent, answer and call id.
        keep: is told of each that is kept.
    """

    def __init__(
        self, files: Files, thread: ThreadName, asker: Owner, call: str, keep: Callable[[FileInfo], None]
    ) -> None:
        self._files = files
        self._thread, self._asker = thread, asker
        self._call = hashlib.sha256(call.encode(errors="surrogatepass")).hexdigest()
        self._count = 0
        self._keep = keep

    async def save(self, name: str, data: bytes, media_type: str) -> FileRef:
        """Keep a file, and wait for a database that is away: what the tool did would be told as a failure otherwise.
        The n-th one of a repeated call is the n-th that was kept before."""
        origin, self._count = f"{self._call}/{self._count}", self._count + 1
        how = {"purpose": OF_TOOLS, "media_type": media_type, "origin": origin}
        create = partial(self._files.create, self._thread.owner, name, data, **how)
        kept = await patiently(lambda _: create(), self._files.outage)
        self._keep(kept)
        return FileRef(kept.file_id, kept.filename, kept.bytes, kept.media_type)

    async def read(self, file_id: str) -> bytes:
        """The content of a file of who asks: of the thread's owner they see what was sent. Raises NotFound."""
        return await self._files.read(self._asker, file_id)

    async def given(self, most: int) -> dict[str, bytes]:
        """See `ToolRun.given`. Of files of the same name, the newest; what was deleted since is none any more."""
        found: dict[str, bytes] = {}
        sent = await self._files.database.read(partial(sent_files, name=self._thread))
        # Who has made the file of a thread may have named anybody's: only theirs are read for whom the run is.
        for file, owner in product(sent, dict.fromkeys((self._thread.owner, self._asker))):
            if file.filename not in found:
                with suppress(NotFound, FileTooLarge):
                    found[file.filename] = await self._files.read(owner, file.id, limit=most)
                    most -= len(found[file.filename])
        return found
