"""A `Caller` has what one user can do in a `DrSai`, each verb once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

from drsai_backend.access.principal import Principal
from drsai_backend.database.shares import Grantee
from drsai_backend.datamodel import Right, RunStatus, TeamResult
from drsai_backend.datamodel.owner import DEFAULT_TENANT, ThreadName
from drsai_backend.datamodel.sharing import read_right
from drsai_backend.datamodel.thread import check_name
from drsai_backend.errors import DrSaiError, Forbidden
from drsai_backend.state.travel import Place
from drsai_backend.teams.limits import NO_LIMITS, RunLimits

if TYPE_CHECKING:
    from autogen_agentchat.base import TaskResult
    from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage

    from drsai_backend.features.registered_tools.calls import ToolCalls
    from drsai_backend.features.stored_definitions.calls import AgentCalls
    from drsai_backend.json_types import JsonObject
    from drsai_backend.page import Page
    from drsai_backend.runs import Answer, Engine, Handle, ModelParams, OnBusy, OnQuestion
    from drsai_backend.runs.requests import Task
    from drsai_backend.runs.steps.views import RunStep
    from drsai_backend.runs.threads.loading import LoadMode
    from drsai_backend.runs.threads.rights import Named
    from drsai_backend.runs.threads.travel import BranchView, TurnView
    from drsai_backend.runs.threads.views import (
        InputRequestView,
        RunView,
        SharedThread,
        ShareView,
        StoredMessage,
        ThreadDetail,
        ThreadSummary,
    )
    from drsai_backend.teams.client_tools.definitions import ClientTools
    from drsai_backend.teams.shown import ShownChoice


class RunOptions(TypedDict, total=False):
    """How a run is run: what `run`, `run_stream` and `start` take by name.

    Attributes:
        params: sampling parameters for the agents' model calls.
        on_busy: what to do when a run is live on the thread: wait for its end (`enqueue`, the default), raise
            ThreadBusy (`reject`), stop it (`interrupt`), hand the message to all its agents at the next turn (`steer`),
            or stop it and go back to before its message (`rollback`).
        on_question: what the message is to a question that the live run asks while it waits: it keeps its place in the
            queue (`wait`, the default), or it is the answer (`answer`).
        limits: what the run may use, less than the team is allowed: it ends as STOPPED when that is used up.
        client_tools: tools that the caller has. When the answering agent calls some, the run waits: `input_request` of
            the result has the `tool_calls`, and `answer` takes their `results`.
        shown: whose messages are the answer: names of the team's agents and inner teams, or "last" for the newest
            message alone. Default: as the team has it.
    """

    params: ModelParams | None
    on_busy: OnBusy
    on_question: OnQuestion
    limits: RunLimits
    client_tools: ClientTools | None
    shown: ShownChoice | None


class Caller:
    """What one user can do: `drsai.user("ada")` makes one. A `DrSai` is the one of the local user, `anonymous`.

    The program is trusted: it may say that anybody asks. A thread is named by its id.

    Attributes:
        who: the user who asks, with tenant and roles.
        engine: does what is asked.
        tools: the registered tools of the user's tenant: listed, put, deleted, tried, counted.
        agents: the stored definitions of agents and teams: listed, put, deleted, rolled back.

    Raises (all calls):
        NotFound: a thread or a run that is unknown, or another user's.
    """

    def __init__(self, engine: Engine, who: Principal, owner: str | None = None) -> None:
        self.engine = engine
        self.who = who
        self._owner = owner

    def user(
        self, user_id: str, *, tenant: str = DEFAULT_TENANT, roles: Collection[str] = (), owner: str | None = None
    ) -> Caller:
        """Return what a user can do.

        Args:
            user_id: who asks; their answers to questions are kept with it.
            tenant: the user's tenant.
            roles: those that the user has, as the program knows it.
            owner: whose threads the calls are about, where another user of the tenant has shared theirs. Default: the
                user's own.

        Raises:
            InvalidRequest: one of these is no name.
        """
        named = check_name(user_id, "user_id"), check_name(tenant, "tenant")
        who = Principal(*named, roles=frozenset(roles), by=self.who.by)
        return Caller(self.engine, who, None if owner is None else check_name(owner, "owner"))

    @property
    def tools(self) -> ToolCalls:
        from drsai_backend.features.registered_tools.calls import ToolCalls

        return ToolCalls(self.engine.tools, self.who)

    @property
    def agents(self) -> AgentCalls:
        from drsai_backend.features.stored_definitions.calls import AgentCalls

        return AgentCalls(self.engine.agents, self.who)

    def _named(self, thread_id: str) -> Named:
        return thread_id if self._owner is None else ThreadName(self.who.tenant, self._owner, thread_id)

    async def start(
        self,
        team: str,
        task: Task,
        *,
        thread_id: str | None = None,
        background: bool = False,
        webhook_url: str | None = None,
        **options: Unpack[RunOptions],
    ) -> Handle:
        """Start a run and return its handle, once the input is stored. The run does not need the handle to be read.
        Arguments and errors as those of `run`.

        With `background` it is queued, and whichever process has time runs it; `webhook_url` is told when it has ended,
        or waits for a person, signed with the secret of the user (`DrSai.webhooks`).
        """
        return await self._start(team, task, thread_id, options, background, webhook_url)

    async def _start(
        self,
        team: str,
        task: Task,
        thread_id: str | None,
        options: RunOptions,
        background: bool = False,
        webhook_url: str | None = None,
    ) -> Handle:
        from drsai_backend.models.calls.params import ModelParams
        from drsai_backend.runs.requests import Ask, How, InputMessage, Origin, Where

        if unknown := options.keys() - RunOptions.__annotations__.keys():
            raise TypeError(f"a run takes no {', '.join(sorted(unknown))}")
        ask = Ask(
            team,
            InputMessage.of_task(task),
            params=options.get("params") or ModelParams(),
            client_tools=options.get("client_tools"),
            shown=options.get("shown"),
            where=Where(thread_id, self._owner),
            how=How(
                options.get("on_busy", "enqueue"),
                options.get("on_question", "wait"),
                background,
                options.get("limits", NO_LIMITS),
            ),
            origin=Origin(webhook_url=webhook_url),
        )
        return await self.engine.start(ask, self.who)

    async def run(
        self, team: str, task: Task, *, thread_id: str | None = None, **options: Unpack[RunOptions]
    ) -> TeamResult:
        """Run a team on a thread and return what it produced. Cancelling this call stops the run.

        Args:
            team: name of the team.
            task: the user's new message: text, or one or several chat messages of any type that the team takes, which
                it gets as they are, with their source, type, id and metadata.
            thread_id: the thread to continue, in whatever process it ran before; a new one with that id if there is
                none. Default: a new thread with an id of its own (`TeamResult.thread_id`).
            options: those of `RunOptions`.

        Returns:
            The result. Its `status` is AWAITING_INPUT when a person was asked (`input_request`): the next `run` on the
            thread is the answer. With `queued_behind` another run asks, and this message is run when that one has
            ended. It is RUNNING when this object was closed meanwhile, and another process continues.

        Raises:
            RunFailed: the run ended as ERROR; `__cause__` is what was raised.
            UnknownModel, InvalidRequest, ThreadBusy, StateError, TeamBuildError, DatabaseError: nothing was stored.
        """
        from drsai_backend.runs.feed.outcome import result_of

        handle = await self._start(team, task, thread_id, options)
        async with self._watching(handle):
            end = await handle.wait()
        return result_of(handle, end)

    async def run_stream(
        self, team: str, task: Task, *, thread_id: str | None = None, **options: Unpack[RunOptions]
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | TaskResult, None]:
        """`run`, as a stream of AutoGen messages that ends with the `TaskResult`: AutoGen's `Console` shows it.

        Streamed chunks come at once, messages when they are stored. Leaving the stream early stops the run.
        """
        from autogen_agentchat.base import TaskResult

        from drsai_backend.runs.events import RunEnded
        from drsai_backend.runs.feed.outcome import check_failure, message_of

        handle = await self._start(team, task, thread_id, options)
        end = RunEnded(RunStatus.RUNNING)
        async with self._watching(handle), aclosing(handle.events()) as events:
            async for event in events:
                if isinstance(event, RunEnded):
                    end = event
                elif (message := message_of(event)) is not None:
                    yield message
        check_failure(handle, end)
        yield TaskResult(messages=[done.message for done in handle.transcript()], stop_reason=end.stop_reason)

    @asynccontextmanager
    async def _watching(self, handle: Handle) -> AsyncGenerator[None]:
        """Stop the run when its caller leaves before its end."""
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            with contextlib.suppress(DrSaiError):  # over by now, or another process's
                await self.user(handle.user_id, tenant=handle.name.tenant).cancel_run(handle.run_id)
            raise

    async def stop(self, thread_id: str) -> ThreadDetail:
        """End what a thread does, or waits for, as STOPPED, in whatever process; finished turns stay. Returns when it
        has ended, or after some seconds when another process has not ended it yet: the thread as it is then. Raises
        IllegalTransition when nothing is under way; a run that was stopped already is no error."""
        return await self.engine.cancel(self.who, self._named(thread_id))

    async def pause(self, thread_id: str) -> ThreadDetail:
        """Ask a thread's live run to pause at its next turn boundary. Raises IllegalTransition when no run is live; one
        that is paused already is no error."""
        return await self.engine.pause(self.who, self._named(thread_id))

    async def resume(self, thread_id: str) -> ThreadDetail:
        """Resume a thread's paused run, or take a pause back that has not come yet. Raises IllegalTransition when it is
        not paused."""
        return await self.engine.resume(self.who, self._named(thread_id))

    async def retry(self, thread_id: str) -> ThreadDetail:
        """Run a thread's run that has failed again, from the turn that failed. What was done in it is not done again.
        Raises IllegalTransition when the thread's last run has not failed."""
        return await self.engine.retry(self.who, self._named(thread_id))

    async def input_requests(self, *, after: str | None = None, limit: int = 20) -> Page[InputRequestView]:
        """A page of the questions that wait for the user, or for one of their roles, in all threads of the tenant,
        newest first; `owner` of each is whose thread it is. `after` is the `next` of the page before."""
        return await self.engine.list_input_requests(self.who, after=after, limit=limit)

    async def answer(self, thread_id: str, answer: Answer) -> Handle:
        """Answer what a thread's run waits for, and resume it. The answer names the question by its id
        (`Thread.input_request["id"]`).

        Raises:
            Forbidden: the question is not for them to answer.
            StaleAnswer: the thread does not wait for this answer (any more).
            InvalidRequest: it does not fit the question.
            UnknownModel: this process does not serve the team, or is no worker.
            StateError, TeamBuildError, ShuttingDown, DatabaseError: nothing was stored.
        """
        return await self.engine.answer(self.who, self._named(thread_id), answer)

    async def cancel_run(self, run_id: str) -> RunView:
        """End one run, live or queued, as STOPPED. Raises IllegalTransition when it is over."""
        return await self.engine.cancel_run(self.who, run_id)

    async def get_run(self, run_id: str) -> RunView:
        """A run, live or over."""
        return await self.engine.get_run(self.who, run_id)

    async def list_runs(self, thread_id: str | None, *, after: str | None = None, limit: int = 20) -> Page[RunView]:
        """A page of a thread's runs, or with None of all of the user's, newest first; `after` is the `next` of the page
        before."""
        of_thread = None if thread_id is None else self._named(thread_id)
        return await self.engine.list_runs(self.who, of_thread, after=after, limit=limit)

    async def steps(
        self, run_id: str, *, after: str | None = None, limit: int = 100, order: Literal["asc", "desc"] = "asc"
    ) -> Page[RunStep]:
        """A page of the steps of a run, live or over: calls of tools with what they returned, and answers. The oldest
        come first, or with `desc` the newest; `after` is the `next` of the page before. Texts are whole.

        Raises:
            NotFound: the user has no such run, and none is shared with them.
            InvalidRequest: `after` is no `next`.
        """
        return await self.engine.list_steps(self.who, run_id, after=after, limit=limit, order=order)

    async def get_thread(self, thread_id: str) -> ThreadDetail:
        """A thread, without its messages and state."""
        return await self.engine.get_thread(self.who, self._named(thread_id))

    async def list_threads(self, *, after: str | None = None, limit: int = 20) -> Page[ThreadSummary]:
        """A page of the user's threads, newest first; `after` is the `next` of the page before."""
        return await self.engine.list_threads(self.who, after=after, limit=limit)

    async def list_messages(
        self, thread_id: str, *, after: int = 0, limit: int = 100, branch: int | None = None
    ) -> list[StoredMessage]:
        """Messages of a thread with `seq > after`, in order: those of its current branch, or of another one."""
        named = self._named(thread_id)
        return await self.engine.list_messages(self.who, named, after=after, limit=limit, branch=branch)

    async def turns(
        self, thread_id: str, *, after: int = 0, limit: int = 100, branch: int | None = None
    ) -> Page[TurnView, int]:
        """A page of the turns to which a thread can go back, oldest first: those of its current branch, or of another
        one. `after` is the `next` of the page before."""
        return await self.engine.turns(self.who, self._named(thread_id), after=after, limit=limit, branch=branch)

    async def branches(self, thread_id: str, *, after: int = -1, limit: int = 100) -> Page[BranchView, int]:
        """A page of a thread's branches, oldest first; one that was never rewound has one. `after` is the `next` of the
        page before."""
        return await self.engine.branches(self.who, self._named(thread_id), after=after, limit=limit)

    async def fork(
        self,
        thread_id: str,
        *,
        at: int | None = None,
        turn: int | None = None,
        branch: int | None = None,
        new_thread_id: str | None = None,
        to_user: str | None = None,
    ) -> ThreadDetail:
        """A new thread that begins as a thread was at a place, with copies of its messages and no runs.

        Args:
            at: the message (its `seq`) whose turn is the last; of an input, the place before it. 0: the beginning.
            turn: the turn that is the last.
            branch: the end of that branch. Without any of the three: where the thread is.
            new_thread_id: the id of the new thread; default: one that is made up.
            to_user: whose it shall be; default: the same user's.

        Raises:
            InvalidRequest: several of the three, no such place, or its turns were not kept.
            Conflict: there is a thread of the new id.
        """
        place, new = Place(at, turn, branch), new_thread_id
        return await self.engine.fork(self.who, self._named(thread_id), place, new_thread_id=new, to_user=to_user)

    async def rewind(
        self, thread_id: str, *, at: int | None = None, turn: int | None = None, branch: int | None = None
    ) -> ThreadDetail:
        """Have a thread go back to a place, named as for `fork`: the next input continues from there, on a new branch.
        What is left behind stays stored. A run that is paused, or waits for a person, ends as STOPPED.

        Raises:
            InvalidRequest: none or several of the three, no such place, or its turns were not kept.
            ThreadBusy: a run is live on it, or inputs wait in its queue.
        """
        return await self.engine.rewind(self.who, self._named(thread_id), Place(at, turn, branch))

    async def load_history(
        self,
        thread_id: str,
        messages: Sequence[JsonObject],
        *,
        model: str | None = None,
        mode: LoadMode = "append",
        after: int | None = None,
    ) -> ThreadDetail:
        """Put a conversation that was had elsewhere into a thread, one that there is or a new one, without a run: its
        next run continues it.

        Args:
            messages: the conversation, oldest first, as a chat request has it: `{"role": …, "content": …}`.
            model: the team whose answers are in it; needed unless the thread is a conversation with one already.
            mode: `append`: after what the thread has; `replace`: in the place of it, which stays on a branch.
            after: the number of the newest message as the caller knows it, 0 for none; then a call that is repeated is
                refused, and not loaded twice.

        Raises:
            UnknownModel, TeamBuildError: of the model.
            InvalidRequest: there is no model, or a message cannot be used; `param` names the field.
            ThreadBusy: something is under way on the thread.
            Conflict: its newest message is not `after`.
        """
        from drsai_backend.api.http.checking import checked
        from drsai_backend.api.openai.messages import History, read_history
        from drsai_backend.runs.threads.loading import Load

        given = checked(History.model_validate, {"messages": messages})
        read = await asyncio.to_thread(read_history, given.messages)
        return await self.engine.load_history(self.who, self._named(thread_id), read, Load(model, mode, after))

    async def clear_history(self, thread_id: str) -> ThreadDetail:
        """Have a thread forget what was said: as `rewind` to its beginning. What was there stays, on a branch."""
        return await self.rewind(thread_id, turn=0)

    async def set_meta(self, thread_id: str, meta: JsonObject | None) -> ThreadDetail:
        """Replace what programs keep of a thread, `Thread.meta`; None: nothing. Also while a run is live.

        Raises:
            InvalidRequest: it is no object of JSON that can be stored, or has more than 64 KiB.
        """
        return await self.engine.set_meta(self.who, self._named(thread_id), meta)

    async def delete_thread(self, thread_id: str) -> None:
        """Delete a thread of the user with all that belongs to it. Raises ThreadBusy when a run is live on it."""
        if self._owner not in (None, self.who.user_id):
            raise Forbidden("a thread is deleted by its owner")
        await self.engine.delete_thread(self.who, thread_id)

    async def share_thread(
        self,
        thread_id: str,
        *,
        with_user: str | None = None,
        with_role: str | None = None,
        right: Right | Literal["read", "answer", "write"] = Right.READ,
    ) -> ShareView:
        """Share a thread with another user of its tenant, or with everybody there who has a role; or change the
        right that they have.

        Args:
            right: `read` its messages, runs and events; also `answer` what it asks; also `write`: send messages, and
                stop, pause and resume it.

        Raises:
            InvalidRequest: neither or both are given, the user is the owner, or there is no such right.
        """
        grantee = Grantee(with_user, with_role)
        return await self.engine.share_thread(self.who, self._named(thread_id), grantee, read_right(right))

    async def unshare_thread(
        self, thread_id: str, *, with_user: str | None = None, with_role: str | None = None
    ) -> None:
        """Take a share back. Raises NotFound where there is none."""
        await self.engine.unshare_thread(self.who, self._named(thread_id), Grantee(with_user, with_role))

    async def list_shares(self, thread_id: str) -> list[ShareView]:
        """Return with whom a thread is shared, oldest first."""
        return await self.engine.list_shares(self.who, self._named(thread_id))

    async def list_shared_threads(self, *, after: str | None = None, limit: int = 20) -> Page[SharedThread]:
        """A page of the threads that others share with the user, or with one of their roles, newest first.
        `user(…, owner=)` reads one."""
        return await self.engine.list_shared_threads(self.who, after=after, limit=limit)
