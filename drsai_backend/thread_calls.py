"""The calls of `DrSai` on threads that are there: they are steered, answered, read, shared and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Literal

from drsai_backend.access.principal import ANONYMOUS, Principal
from drsai_backend.api.http.checking import checked
from drsai_backend.api.openai.messages import History, read_history
from drsai_backend.database.shares import Grantee
from drsai_backend.datamodel import Right
from drsai_backend.datamodel.audit import By
from drsai_backend.datamodel.owner import DEFAULT_TENANT, ThreadName
from drsai_backend.datamodel.sharing import read_right
from drsai_backend.datamodel.thread import check_name
from drsai_backend.json_types import JsonObject
from drsai_backend.page import Page
from drsai_backend.runs import Answer, Engine, Handle
from drsai_backend.runs.steps.views import RunStep
from drsai_backend.runs.threads.loading import Load, LoadMode
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
from drsai_backend.state.travel import Place


class ThreadCalls:
    """The engine's calls, for a program that is trusted to say who asks.

    Args:
        engine: does what is asked.
        by: what the audit log says of who acts.
    """

    def __init__(self, engine: Engine, by: By) -> None:
        self.engine = engine
        self._by = by

    def _trusted(self, user_id: str, tenant: str, roles: Collection[str] = ()) -> Principal:
        """Whoever a program of one's own says it is."""
        named = check_name(user_id, "user_id"), check_name(tenant, "tenant")
        return Principal(*named, roles=frozenset(roles), by=self._by)

    async def stop(self, user_id: str, thread_id: str, *, tenant: str = DEFAULT_TENANT) -> ThreadDetail:
        """End what a thread does, or waits for, as STOPPED, in whatever process; finished turns stay. Returns when it
        has ended, or after some seconds when another process has not ended it yet: the thread as it is then. Raises
        IllegalTransition when nothing is under way; a run that was stopped already is no error."""
        return await self.engine.cancel(self._trusted(user_id, tenant), thread_id)

    async def pause(self, user_id: str, thread_id: str, *, tenant: str = DEFAULT_TENANT) -> ThreadDetail:
        """Ask a thread's live run to pause at its next turn boundary. Raises IllegalTransition when no run is live; one
        that is paused already is no error."""
        return await self.engine.pause(self._trusted(user_id, tenant), thread_id)

    async def resume(self, user_id: str, thread_id: str, *, tenant: str = DEFAULT_TENANT) -> ThreadDetail:
        """Resume a thread's paused run, or take a pause back that has not come yet. Raises IllegalTransition when it is
        not paused."""
        return await self.engine.resume(self._trusted(user_id, tenant), thread_id)

    async def retry(self, user_id: str, thread_id: str, *, tenant: str = DEFAULT_TENANT) -> ThreadDetail:
        """Run a thread's run that has failed again, from the turn that failed. What was done in it is not done again.
        Raises IllegalTransition when the thread's last run has not failed."""
        return await self.engine.retry(self._trusted(user_id, tenant), thread_id)

    async def input_requests(
        self,
        user_id: str = ANONYMOUS,
        *,
        tenant: str = DEFAULT_TENANT,
        roles: Collection[str] = (),
        after: str | None = None,
        limit: int = 20,
    ) -> Page[InputRequestView]:
        """A page of the questions that wait for a user, or for one of these roles, in all threads of the tenant, newest
        first; `owner` of each is whose thread it is. `after` is the `next` of the page before."""
        who = self._trusted(user_id, tenant, roles)
        return await self.engine.list_input_requests(who, after=after, limit=limit)

    async def answer(
        self,
        user_id: str,
        thread_id: str,
        answer: Answer,
        *,
        tenant: str = DEFAULT_TENANT,
        owner: str | None = None,
        roles: Collection[str] = (),
    ) -> Handle:
        """Answer what a thread's run waits for, and resume it. The answer names the question by its id
        (`Thread.input_request["id"]`).

        Args:
            user_id: who answers; it is kept with the answer.
            owner: whose thread it is, where it is another user's of the tenant.
            roles: those that the user has, as the program knows it.

        Raises:
            Forbidden: the question is not for them to answer.
            StaleAnswer: the thread does not wait for this answer (any more).
            InvalidRequest: it does not fit the question.
            StateError, TeamBuildError, ShuttingDown, DatabaseError: nothing was stored.
        """
        who = self._trusted(user_id, tenant, roles)
        name = thread_id if owner is None else ThreadName(tenant, check_name(owner, "owner"), thread_id)
        return await self.engine.answer(who, name, answer)

    async def cancel_run(self, user_id: str, run_id: str, *, tenant: str = DEFAULT_TENANT) -> RunView:
        """End one run, live or queued, as STOPPED. Raises IllegalTransition when it is over."""
        return await self.engine.cancel_run(self._trusted(user_id, tenant), run_id)

    async def get_run(self, user_id: str, run_id: str, *, tenant: str = DEFAULT_TENANT) -> RunView:
        """A run, live or over."""
        return await self.engine.get_run(self._trusted(user_id, tenant), run_id)

    async def list_runs(
        self,
        user_id: str,
        thread_id: str,
        *,
        tenant: str = DEFAULT_TENANT,
        after: str | None = None,
        limit: int = 20,
    ) -> Page[RunView]:
        """A page of a thread's runs, newest first; `after` is the `next` of the page before."""
        return await self.engine.list_runs(self._trusted(user_id, tenant), thread_id, after=after, limit=limit)

    async def steps(
        self,
        run_id: str,
        *,
        user_id: str = ANONYMOUS,
        tenant: str = DEFAULT_TENANT,
        after: str | None = None,
        limit: int = 100,
        order: Literal["asc", "desc"] = "asc",
    ) -> Page[RunStep]:
        """A page of the steps of a run, live or over: calls of tools with what they returned, and answers. The oldest
        come first, or with `desc` the newest; `after` is the `next` of the page before. Texts are whole.

        Raises:
            NotFound: the user has no such run, and none is shared with them.
            InvalidRequest: `after` is no `next`.
        """
        who = self._trusted(user_id, tenant)
        return await self.engine.list_steps(who, run_id, after=after, limit=limit, order=order)

    async def get_thread(self, user_id: str, thread_id: str, *, tenant: str = DEFAULT_TENANT) -> ThreadDetail:
        """A thread, without its messages and state."""
        return await self.engine.get_thread(self._trusted(user_id, tenant), thread_id)

    async def list_threads(
        self, user_id: str, *, tenant: str = DEFAULT_TENANT, after: str | None = None, limit: int = 20
    ) -> Page[ThreadSummary]:
        """A page of a user's threads, newest first; `after` is the `next` of the page before."""
        return await self.engine.list_threads(self._trusted(user_id, tenant), after=after, limit=limit)

    async def list_messages(
        self,
        user_id: str,
        thread_id: str,
        *,
        tenant: str = DEFAULT_TENANT,
        after: int = 0,
        limit: int = 100,
        branch: int | None = None,
    ) -> list[StoredMessage]:
        """Messages of a thread with `seq > after`, in order: those of its current branch, or of another one."""
        who = self._trusted(user_id, tenant)
        return await self.engine.list_messages(who, thread_id, after=after, limit=limit, branch=branch)

    async def turns(
        self,
        user_id: str,
        thread_id: str,
        *,
        tenant: str = DEFAULT_TENANT,
        after: int = 0,
        limit: int = 100,
        branch: int | None = None,
    ) -> Page[TurnView, int]:
        """A page of the turns to which a thread can go back, oldest first: those of its current branch, or of another
        one. `after` is the `next` of the page before."""
        who = self._trusted(user_id, tenant)
        return await self.engine.turns(who, thread_id, after=after, limit=limit, branch=branch)

    async def branches(
        self, user_id: str, thread_id: str, *, tenant: str = DEFAULT_TENANT, after: int = -1, limit: int = 100
    ) -> Page[BranchView, int]:
        """A page of a thread's branches, oldest first; one that was never rewound has one. `after` is the `next` of the
        page before."""
        return await self.engine.branches(self._trusted(user_id, tenant), thread_id, after=after, limit=limit)

    async def fork(
        self,
        user_id: str,
        thread_id: str,
        *,
        at: int | None = None,
        turn: int | None = None,
        branch: int | None = None,
        new_thread_id: str | None = None,
        to_user: str | None = None,
        tenant: str = DEFAULT_TENANT,
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
        who, place = self._trusted(user_id, tenant), Place(at, turn, branch)
        return await self.engine.fork(who, thread_id, place, new_thread_id=new_thread_id, to_user=to_user)

    async def rewind(
        self,
        user_id: str,
        thread_id: str,
        *,
        at: int | None = None,
        turn: int | None = None,
        branch: int | None = None,
        tenant: str = DEFAULT_TENANT,
    ) -> ThreadDetail:
        """Have a thread go back to a place, named as for `fork`: the next input continues from there, on a new branch.
        What is left behind stays stored. A run that is paused, or waits for a person, ends as STOPPED.

        Raises:
            InvalidRequest: none or several of the three, no such place, or its turns were not kept.
            ThreadBusy: a run is live on it, or inputs wait in its queue.
        """
        return await self.engine.rewind(self._trusted(user_id, tenant), thread_id, Place(at, turn, branch))

    async def load_history(
        self,
        user_id: str,
        thread_id: str,
        messages: Sequence[JsonObject],
        *,
        model: str | None = None,
        mode: LoadMode = "append",
        after: int | None = None,
        tenant: str = DEFAULT_TENANT,
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
        who = self._trusted(user_id, tenant)
        given = checked(History.model_validate, {"messages": messages})
        read = await asyncio.to_thread(read_history, given.messages)
        return await self.engine.load_history(who, thread_id, read, Load(model, mode, after))

    async def clear_history(self, user_id: str, thread_id: str, *, tenant: str = DEFAULT_TENANT) -> ThreadDetail:
        """Have a thread forget what was said: as `rewind` to its beginning. What was there stays, on a branch."""
        return await self.rewind(user_id, thread_id, turn=0, tenant=tenant)

    async def delete_thread(self, user_id: str, thread_id: str, *, tenant: str = DEFAULT_TENANT) -> None:
        """Delete a thread with all that belongs to it. Raises ThreadBusy when a run is live on it."""
        await self.engine.delete_thread(self._trusted(user_id, tenant), thread_id)

    async def share_thread(
        self,
        user_id: str,
        thread_id: str,
        *,
        with_user: str | None = None,
        with_role: str | None = None,
        right: Right | Literal["read", "answer", "write"] = Right.READ,
        tenant: str = DEFAULT_TENANT,
    ) -> ShareView:
        """Share a user's thread with another user of its tenant, or with everybody there who has a role; or change the
        right that they have.

        Args:
            right: `read` its messages, runs and events; also `answer` what it asks; also `write`: send messages, and
                stop, pause and resume it.

        Raises:
            InvalidRequest: neither or both are given, the user is the owner, or there is no such right.
        """
        who, grantee = self._trusted(user_id, tenant), Grantee(with_user, with_role)
        return await self.engine.share_thread(who, thread_id, grantee, read_right(right))

    async def unshare_thread(
        self,
        user_id: str,
        thread_id: str,
        *,
        with_user: str | None = None,
        with_role: str | None = None,
        tenant: str = DEFAULT_TENANT,
    ) -> None:
        """Take a share back. Raises NotFound where there is none."""
        await self.engine.unshare_thread(self._trusted(user_id, tenant), thread_id, Grantee(with_user, with_role))

    async def list_shares(self, user_id: str, thread_id: str, *, tenant: str = DEFAULT_TENANT) -> list[ShareView]:
        """With whom a user's thread is shared, oldest first."""
        return await self.engine.list_shares(self._trusted(user_id, tenant), thread_id)

    async def list_shared_threads(
        self,
        user_id: str,
        *,
        tenant: str = DEFAULT_TENANT,
        roles: Collection[str] = (),
        after: str | None = None,
        limit: int = 20,
    ) -> Page[SharedThread]:
        """A page of the threads that others share with a user, or with one of these roles, newest first. The program is
        trusted: it reads one as its `owner`."""
        return await self.engine.list_shared_threads(self._trusted(user_id, tenant, roles), after=after, limit=limit)
