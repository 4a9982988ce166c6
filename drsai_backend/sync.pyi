# Made by `make stub` from the asynchronous calls; do not edit.
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Literal, Self, TypeVar, Unpack

from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage
from autogen_core.tools import ToolResult

from drsai_backend.access.principal import Principal
from drsai_backend.access.switchboard import SwitchKind
from drsai_backend.caller import RunOptions
from drsai_backend.database import SyncDatabaseManager
from drsai_backend.database.files import FileInfo
from drsai_backend.datamodel import Right, TeamResult
from drsai_backend.datamodel.audit import PROGRAM, Actor
from drsai_backend.datamodel.owner import DEFAULT_TENANT, Owner, ThreadName
from drsai_backend.definitions.stored.store import Visibility
from drsai_backend.drsai import DrSai
from drsai_backend.features.all_runs.base import ALL, AnyRun, Board, ErrorGroup, Order, SteeredAll, Verb, Wanted
from drsai_backend.features.budgets.base import BudgetInfo
from drsai_backend.features.config.base import ConfigInfo
from drsai_backend.features.limits.base import LimitInfo
from drsai_backend.features.registered_tools.calls import ToolInfo, ToolStatistics
from drsai_backend.features.rules.base import Kind
from drsai_backend.features.stored_definitions.calls import AgentInfo
from drsai_backend.features.switches.base import SwitchInfo
from drsai_backend.features.usage.base import Counted, GroupBy, UsageSum
from drsai_backend.json_types import JsonObject
from drsai_backend.models.prices import Prices
from drsai_backend.page import Page
from drsai_backend.runs import Answer, Engine, MessageDone, RunEvent
from drsai_backend.runs.events import RunEnded
from drsai_backend.runs.requests import Task
from drsai_backend.runs.steps.views import RunStep
from drsai_backend.runs.threads.loading import LoadMode
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

T = TypeVar("T")

class SyncCaller:
    """The calls of a `Caller`, for threads."""

    engine: Engine
    who: Principal

    def user(
        self, user_id: str, *, tenant: str = DEFAULT_TENANT, roles: Collection[str] = (), owner: str | None = None
    ) -> SyncCaller:
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

    @property
    def tools(self) -> SyncTools: ...
    @property
    def agents(self) -> SyncAgents: ...
    def start(
        self,
        team: str,
        task: Task,
        *,
        thread_id: str | None = None,
        background: bool = False,
        webhook_url: str | None = None,
        **options: Unpack[RunOptions],
    ) -> SyncHandle:
        """Start a run and return its handle, once the input is stored. The run does not need the handle to be read.
        Arguments and errors as those of `run`.

        With `background` it is queued, and whichever process has time runs it; `webhook_url` is told when it has ended,
        or waits for a person, signed with the secret of the user (`DrSai.webhooks`).
        """

    def run(self, team: str, task: Task, *, thread_id: str | None = None, **options: Unpack[RunOptions]) -> TeamResult:
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

    def run_stream(
        self, team: str, task: Task, *, thread_id: str | None = None, **options: Unpack[RunOptions]
    ) -> Iterator[BaseAgentEvent | BaseChatMessage | TaskResult]:
        """`run`, as a stream of AutoGen messages that ends with the `TaskResult`: AutoGen's `Console` shows it.

        Streamed chunks come at once, messages when they are stored. Leaving the stream early stops the run.
        """

    def stop(self, thread_id: str) -> ThreadDetail:
        """End what a thread does, or waits for, as STOPPED, in whatever process; finished turns stay. Returns when it
        has ended, or after some seconds when another process has not ended it yet: the thread as it is then. Raises
        IllegalTransition when nothing is under way; a run that was stopped already is no error."""

    def pause(self, thread_id: str) -> ThreadDetail:
        """Ask a thread's live run to pause at its next turn boundary. Raises IllegalTransition when no run is live; one
        that is paused already is no error."""

    def resume(self, thread_id: str) -> ThreadDetail:
        """Resume a thread's paused run, or take a pause back that has not come yet. Raises IllegalTransition when it is
        not paused."""

    def retry(self, thread_id: str) -> ThreadDetail:
        """Run a thread's run that has failed again, from the turn that failed. What was done in it is not done again.
        Raises IllegalTransition when the thread's last run has not failed."""

    def input_requests(self, *, after: str | None = None, limit: int = 20) -> Page[InputRequestView]:
        """A page of the questions that wait for the user, or for one of their roles, in all threads of the tenant,
        newest first; `owner` of each is whose thread it is. `after` is the `next` of the page before."""

    def answer(self, thread_id: str, answer: Answer) -> SyncHandle:
        """Answer what a thread's run waits for, and resume it. The answer names the question by its id
        (`Thread.input_request["id"]`).

        Raises:
            Forbidden: the question is not for them to answer.
            StaleAnswer: the thread does not wait for this answer (any more).
            InvalidRequest: it does not fit the question.
            UnknownModel: this process does not serve the team, or is no worker.
            StateError, TeamBuildError, ShuttingDown, DatabaseError: nothing was stored.
        """

    def cancel_run(self, run_id: str) -> RunView:
        """End one run, live or queued, as STOPPED. Raises IllegalTransition when it is over."""

    def get_run(self, run_id: str) -> RunView:
        """A run, live or over."""

    def list_runs(self, thread_id: str | None, *, after: str | None = None, limit: int = 20) -> Page[RunView]:
        """A page of a thread's runs, or with None of all of the user's, newest first; `after` is the `next` of the page
        before."""

    def steps(
        self, run_id: str, *, after: str | None = None, limit: int = 100, order: Literal["asc", "desc"] = "asc"
    ) -> Page[RunStep]:
        """A page of the steps of a run, live or over: calls of tools with what they returned, and answers. The oldest
        come first, or with `desc` the newest; `after` is the `next` of the page before. Texts are whole.

        Raises:
            NotFound: the user has no such run, and none is shared with them.
            InvalidRequest: `after` is no `next`.
        """

    def get_thread(self, thread_id: str) -> ThreadDetail:
        """A thread, without its messages and state."""

    def list_threads(self, *, after: str | None = None, limit: int = 20) -> Page[ThreadSummary]:
        """A page of the user's threads, newest first; `after` is the `next` of the page before."""

    def list_messages(
        self, thread_id: str, *, after: int = 0, limit: int = 100, branch: int | None = None
    ) -> list[StoredMessage]:
        """Messages of a thread with `seq > after`, in order: those of its current branch, or of another one."""

    def turns(
        self, thread_id: str, *, after: int = 0, limit: int = 100, branch: int | None = None
    ) -> Page[TurnView, int]:
        """A page of the turns to which a thread can go back, oldest first: those of its current branch, or of another
        one. `after` is the `next` of the page before."""

    def branches(self, thread_id: str, *, after: int = -1, limit: int = 100) -> Page[BranchView, int]:
        """A page of a thread's branches, oldest first; one that was never rewound has one. `after` is the `next` of the
        page before."""

    def fork(
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

    def rewind(
        self, thread_id: str, *, at: int | None = None, turn: int | None = None, branch: int | None = None
    ) -> ThreadDetail:
        """Have a thread go back to a place, named as for `fork`: the next input continues from there, on a new branch.
        What is left behind stays stored. A run that is paused, or waits for a person, ends as STOPPED.

        Raises:
            InvalidRequest: none or several of the three, no such place, or its turns were not kept.
            ThreadBusy: a run is live on it, or inputs wait in its queue.
        """

    def load_history(
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

    def clear_history(self, thread_id: str) -> ThreadDetail:
        """Have a thread forget what was said: as `rewind` to its beginning. What was there stays, on a branch."""

    def set_meta(self, thread_id: str, meta: JsonObject | None) -> ThreadDetail:
        """Replace what programs keep of a thread, `Thread.meta`; None: nothing. Also while a run is live.

        Raises:
            InvalidRequest: it is no object of JSON that can be stored, or has more than 64 KiB.
        """

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread of the user with all that belongs to it. Raises ThreadBusy when a run is live on it."""

    def share_thread(
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

    def unshare_thread(self, thread_id: str, *, with_user: str | None = None, with_role: str | None = None) -> None:
        """Take a share back. Raises NotFound where there is none."""

    def list_shares(self, thread_id: str) -> list[ShareView]:
        """Return with whom a thread is shared, oldest first."""

    def list_shared_threads(self, *, after: str | None = None, limit: int = 20) -> Page[SharedThread]:
        """A page of the threads that others share with the user, or with one of their roles, newest first.
        `user(…, owner=)` reads one."""

class SyncHandle:
    """A run that was started, as `DrSai.start` returns it, for threads. What it has besides calls is that of the
    `Handle`."""

    thread_id: str
    user_id: str
    imported: bool
    run_id: str
    name: ThreadName
    team: str
    created: int
    speakers: int
    ignored: Sequence[str]

    @property
    def failure(self) -> BaseException | None:
        """What was raised in this process when the run ended as ERROR."""

    @property
    def failed_agent(self) -> str | None:
        """The name of the agent that raised `failure`, if one did."""

    def events(self) -> Iterator[RunEvent]:
        """Yield every event of the run from its beginning; ends after `RunEnded`, also where that says that the run is
        still in the queue, because a person is asked first. Who stops before the end and asks again reads on where they
        were; after the end, or after `wait`, all is told anew."""

    def poll(self) -> list[RunEvent]:
        """The events that are ready now, after those that `events()` has yielded; they are not yielded again."""

    def wait(self) -> RunEnded:
        """The end of the run."""

    def transcript(self) -> list[MessageDone]:
        """The stored messages of the run that were read so far, in order, its input included."""

class SyncFiles:
    """`DrSai.files` for threads."""

    def create(
        self,
        owner: Owner,
        name: str,
        data: bytes | Iterable[bytes],
        *,
        purpose: str = "user_data",
        media_type: str | None = None,
        expires_after: timedelta | None = None,
    ) -> FileInfo:
        """Keep a file, as `Files.create` does. `data` in parts is read in a thread, a part at a time."""

    def made_by(self, owner: Owner, origin: str) -> FileInfo | None:
        """The file that was made so; None: there is none."""

    def list(
        self,
        owner: Owner,
        *,
        after: str | None = None,
        limit: int = 10000,
        order: Literal["asc", "desc"] = "desc",
        purpose: str | None = None,
    ) -> Page[FileInfo]:
        """A page of a user's files, newest first (`desc`) or last. Raises InvalidRequest: `after` is none of them."""

    def get(self, owner: Owner, file_id: str) -> FileInfo:
        """A file of a user. Raises NotFound."""

    def open(self, owner: Owner, file_id: str) -> tuple[FileInfo, Place]:
        """A file of a user, and where `stream` finds its bytes. Raises NotFound."""

    def stream(self, place: Place, start: int, stop: int) -> Iterator[bytes]:
        """The bytes from `start` to before `stop`, in parts. Raises DatabaseError: it was deleted meanwhile."""

    def read(self, owner: Owner, file_id: str, *, limit: int | None = None) -> bytes:
        """The content of a file. Raises NotFound, and FileTooLarge: it has more than `limit` bytes."""

    def delete(self, owner: Owner, file_id: str, *, actor: Actor = PROGRAM, expiring: bool = False) -> None:
        """Delete a file. Raises NotFound. `expiring`: one that does not expire any more stays."""

class SyncTools:
    """`DrSai.tools` for threads."""

    def list(self, *, after: str | None = None, limit: int = 20) -> Page[ToolInfo]:
        """A page of the tools, by name. Raises InvalidRequest: `after` is no `next` of a page."""

    def get(self, name: str) -> ToolInfo:
        """One tool, in the version that is served."""

    def put(
        self, name: str, config: JsonObject, *, secrets: Mapping[str, str] | None = None, type: str = "http"
    ) -> ToolInfo:
        """Register a tool, or another version of it. Every worker serves it within two seconds, to runs that begin
        after that.

        Args:
            name: what agents call it by.
            config: what it calls; docs/tools.md has the fields.
            secrets: credentials by name; they are stored as ciphertext. Those of the version before are not kept.
            type: the kind of tool.

        Raises:
            InvalidRequest: it cannot be used, or its peer refuses the credentials; nothing is stored then.
            Conflict: there are too many.
        """

    def versions(self, name: str, *, after: str | None = None, limit: int = 20) -> Page[ToolInfo]:
        """A page of the versions of a tool that are kept, newest first. Raises InvalidRequest: `after` is no `next`."""

    def roll_back(self, name: str, version: int) -> ToolInfo:
        """Serve an older version of a tool again, with the credentials that it had: a new version, equal to it.

        Raises:
            NotFound: the version is not kept, too.
            InvalidRequest: it cannot be used any more, or its peer refuses the credentials; nothing is stored then.
        """

    def delete(self, name: str) -> None:
        """Delete a tool. Runs that began with it keep it for 30 days."""

    def invoke(self, name: str, arguments: JsonObject) -> ToolResult:
        """Call a tool outside any run, to try it. What goes wrong in it is a result with `is_error`."""

    def statistics(self, name: str) -> ToolStatistics:
        """Return how often a tool was called, how often that failed, and how long it took."""

class SyncAgents:
    """`DrSai.agents` for threads."""

    def list(
        self, *, visibility: Visibility | None = None, after: str | None = None, limit: int = 20
    ) -> Page[AgentInfo]:
        """A page of the definitions that the user may ask, by name. `visibility`: their own (`user`), their tenant's,
        or those for `all`; None: all three. Raises InvalidRequest: `after` is no `next` of a page."""

    def get(self, name: str, *, visibility: Visibility | None = None, version: int | None = None) -> AgentInfo:
        """One definition: the one that the user asks by this name, or that of a `visibility`; as it is served, or an
        older `version`."""

    def put(
        self,
        name: str,
        definition: JsonObject,
        *,
        visibility: Visibility = "user",
        version: int | None = None,
        validate_only: bool = False,
    ) -> AgentInfo | None:
        """Store a definition, or another version of it. Every worker serves it within two seconds, to runs that begin
        after that.

        Args:
            name: the agent or team of the definition that is asked.
            definition: `agents`, `teams` and `tools`, as in a file; docs/agents.md has the fields.
            visibility: for whom it is: the user, their tenant, or all.
            version: the version that is replaced; None: whichever there is, or none.
            validate_only: check it, and store nothing.

        Returns:
            What was stored; None: nothing was.

        Raises:
            InvalidRequest: it cannot be used; the text says all that is wrong.
            Conflict: this server serves a team of that name itself; it is not at `version` any more; or there are too
                many.
        """

    def delete(self, name: str, *, visibility: Visibility = "user", version: int | None = None) -> None:
        """Delete a definition. Runs that began with it end with it. Raises Conflict: it is not at `version`."""

    def versions(
        self, name: str, *, visibility: Visibility | None = None, after: str | None = None, limit: int = 20
    ) -> Page[AgentInfo]:
        """A page of the versions of a definition that are kept, newest first; 100 at most are. Raises InvalidRequest:
        `after` is no `next` of a page."""

    def roll_back(
        self, name: str, to: int, *, visibility: Visibility = "user", version: int | None = None
    ) -> AgentInfo:
        """Serve an older version again, which becomes a new one. Raises Conflict: `to` is what is served, or what is
        served is not `version`."""

class SyncUsage:
    """`DrSai.usage` for threads."""

    @property
    def prices(self) -> Prices:
        """The list of prices (`DRSAI_PRICES`). Raises ConfigurationError where it cannot be used."""

    def report(
        self,
        of: Counted | None = None,
        group_by: Sequence[GroupBy] = ("day",),
        after: str | None = None,
        limit: int = 100,
    ) -> Page[UsageSum]:
        """Return a page of sums.

        Args:
            of: which calls are summed; None: all.
            group_by: by what, in this order, which is that of the page; none: one sum of all.
            after: `next` of the page before.
            limit: how many sums at most.

        Raises:
            InvalidRequest: `after` is no `next` of such a report, or there is no such group.
        """

    def fold(self, older_than: timedelta) -> int:
        """Make sums of days of the calls that are older, in parts; return how many calls. What a sum still says are its
        day, user, model, profile, team and kind. Days that have begun later are left whole.

        Raises:
            InvalidRequest: `older_than` reaches back before the first year, or is negative.
        """

class SyncBudgets:
    """`DrSai.budgets` for threads."""

    def remove(self, kind: Kind, name: str = "", *, tenant: str = DEFAULT_TENANT, actor: Actor = PROGRAM) -> bool:
        """Have the settings hold again; False: nothing was set. Arguments as those of `set`.

        Raises:
            InvalidRequest: `kind` or `name` cannot be.
        """

    def list(self, tenant: str | None = None, after: str | None = None, limit: int = 20) -> Page[BudgetInfo]:
        """Return a page of what was set, the newest first, with what is used of it. `tenant`: only of this one. Raises
        InvalidRequest where `after` is no `next`."""

    def set(
        self,
        kind: Kind,
        name: str = "",
        *,
        tenant: str = DEFAULT_TENANT,
        tokens_day: int | None = None,
        tokens_month: int | None = None,
        cost_day: float | None = None,
        cost_month: float | None = None,
        actor: Actor = PROGRAM,
    ) -> BudgetInfo:
        """Set what a key, a user, a tenant, all or a thread may spend, in place of what was set before. All workers
        go by it within two seconds.

        Args:
            kind: `key`, `user`, `tenant`, `thread`, or `all` together.
            name: the id of the key, or the user, or of a thread `USER/THREAD`, in which a `/` of an id is `%2F`; else
                empty.
            tenant: that of the key, the user or the thread, or the tenant itself.
            tokens_day: of model calls, in a day. None: as the settings say; 0: no budget.
            tokens_month: in a month.
            cost_day: in a day, in the currency of the prices.
            cost_month: in a month.
            actor: who does it.

        Raises:
            InvalidRequest: one of these cannot be; `param` names it.
            Conflict: a tenant's admin sets it, and 10,000 are set there already.
        """

class SyncLimits:
    """`DrSai.limits` for threads."""

    def remove(self, kind: Kind, name: str = "", *, tenant: str = DEFAULT_TENANT, actor: Actor = PROGRAM) -> bool:
        """Have the settings hold again; False: nothing was set. Arguments as those of `set`.

        Raises:
            InvalidRequest: `kind` or `name` cannot be.
        """

    def list(self, tenant: str | None = None, after: str | None = None, limit: int = 20) -> Page[LimitInfo]:
        """Return a page of what was set, the newest first. `tenant`: only of this one. Raises InvalidRequest where
        `after` is no `next`."""

    def set(
        self,
        kind: Kind,
        name: str = "",
        *,
        tenant: str = DEFAULT_TENANT,
        requests: int | None = None,
        tokens: int | None = None,
        runs: int | None = None,
        streams: int | None = None,
        actor: Actor = PROGRAM,
    ) -> LimitInfo:
        """Set what a key, a user, a tenant or all may do, in place of what was set before. All workers go by it within
        two seconds.

        Args:
            kind: `key`, `user`, `tenant`, or `all` together.
            name: the id of the key, or the user; else empty.
            tenant: that of the key or the user, or the tenant itself.
            requests: a minute. None: as the settings say; 0: no limit.
            tokens: of model calls, a minute.
            runs: at once, those that wait in queues included.
            streams: at once, in each process.
            actor: who does it.

        Raises:
            InvalidRequest: one of these cannot be; `param` names it.
            Conflict: a tenant's admin sets it, and 10,000 are set there already.
        """

class SyncAllRuns:
    """`DrSai.all_runs` for threads."""

    def get(self, run_id: str, *, tenant: str | None = None) -> AnyRun:
        """A run of whomever, in that tenant or any. Raises NotFound."""

    def errors(self, of: Wanted = ALL, *, tenant: str | None = None, limit: int = 100) -> Sequence[ErrorGroup]:
        """Return in which ways the wanted runs have failed, by team, the most frequent first: `limit` at most, of the
        newest 100,000 runs. They are read one by one: say `since`. Raises InvalidRequest as `list`."""

    def board(self, limit: int = 50) -> Board:
        """Return what is live and what waits in all tenants, with so many of the live runs, the oldest first."""

    def steer(self, verb: Verb, run_id: str, *, tenant: str | None = None, actor: Actor = PROGRAM) -> AnyRun:
        """Do with a run what its owner may: cancel, pause, resume or retry it. Returns it as it is then: one that
        another process runs may be live for some seconds more.

        Args:
            verb: what is done.
            run_id: with which run.
            tenant: whose it must be; None: anybody's.
            actor: who wants it, for the audit log.

        Raises:
            NotFound: there is no such run.
            IllegalTransition: the run is not such that this can be done.
            Conflict: it was changed again and again meanwhile.
            TeamBuildError, StateError, DatabaseError: as of `Caller.resume`.
        """

    def steer_all(
        self,
        verb: Verb,
        of: Wanted,
        *,
        tenant: str | None = None,
        limit: int = 100,
        dry_run: bool = False,
        actor: Actor = PROGRAM,
    ) -> SteeredAll:
        """`steer`, with all wanted runs that the verb can change, or the first ones. What was done is not done again:
        a call that was cut off can be repeated.

        Args:
            verb: what is done.
            of: with which runs.
            tenant: whose they must be; None: anybody's.
            limit: with how many at most, up to 1,000.
            dry_run: find and count them, and do nothing.
            actor: who wants it, for the audit log.

        Raises:
            InvalidRequest: as `list`, or the limit is none. What becomes of each run is in what is returned.
        """

    def list(
        self,
        of: Wanted = ALL,
        *,
        tenant: str | None = None,
        order: Order = "newest",
        after: str | None = None,
        limit: int = 20,
    ) -> Page[AnyRun]:
        """A page of runs.

        Args:
            of: which.
            tenant: whose they must be; None: anybody's.
            order: the newest first, or (`slow`) those that have run longest: without `since`, a user, a thread or a
                status of what is not over, of those of the last day and all live ones.
            after: `next` of the page before, in the same order.
            limit: how many at most.

        A page of those that are found by `text` or `tool` looks at 5,000 messages at most (of one run at least), and
        may have fewer runs than `limit`, or none, and a `next`; so may one of those that are found by `error_code`
        where texts are encrypted: it looks at 1,000 runs that have failed.

        Raises:
            InvalidRequest: `after` is no `next` of such a list, or something of `of` cannot be.
        """

class SyncSwitches:
    """`DrSai.switches` for threads."""

    def list(self, tenant: str | None = None, after: str | None = None, limit: int = 20) -> Page[SwitchInfo]:
        """Return a page of what is off, the newest first. `tenant`: only in this one, and not in all. Raises
        InvalidRequest where `after` is no `next`."""

    def off(
        self,
        kind: SwitchKind,
        name: str = "",
        *,
        message: str,
        tenant: str | None = None,
        until: datetime | None = None,
        actor: Actor = PROGRAM,
    ) -> SwitchInfo:
        """Switch something off, in place of how it was before. All workers go by it within two seconds.

        Args:
            kind: `team`, `model`, `tool`, `tenant`, `all`: new runs of all teams in all tenants, or `worker`: a process
                that is to begin nothing more.
            name: of the team, the model or its profile, the tool as models know it, the tenant, or the worker, as
                `pid@host`; of all, empty.
            message: what who asks for it is told, of up to 500 characters.
            tenant: in this one alone; None: in all.
            until: when it is on again by itself, an aware time; None: when `on` is called.
            actor: who does it.

        Raises:
            InvalidRequest: one of these cannot be; `param` names it.
            Conflict: a user does it, and 10,000 are off in their tenant already.
        """

    def on(self, kind: SwitchKind, name: str = "", *, tenant: str | None = None, actor: Actor = PROGRAM) -> bool:
        """Switch something on; False: it was not off. Arguments as those of `off`, by which it is found.

        Raises:
            InvalidRequest: one of these cannot be; `param` names it.
        """

class SyncConfig:
    """`DrSai.config` for threads."""

    def get(self, environment: str | None = None, version: int | None = None) -> ConfigInfo:
        """Return what is stored for an environment; nothing may be.

        Args:
            environment: its name; None: that of this process.
            version: an older version; None: the one that holds.

        Raises:
            NotFound: there is no such version.
        """

    def list(self, after: str | None = None, limit: int = 20) -> Page[ConfigInfo]:
        """Return a page of what is stored for each environment, by name. Raises InvalidRequest where `after` is no
        `next`."""

    def set(
        self,
        values: Mapping[str, object],
        environment: str | None = None,
        *,
        version: int | None = None,
        actor: Actor = PROGRAM,
    ) -> ConfigInfo:
        """Store values of settings beside those that are stored. All servers and workers of the environment go by them
        within two seconds.

        Args:
            values: by the names of `Settings`, each as it is or as its variable has it; None, or an empty text: it is
                stored no more.
            environment: its name; None: that of this process.
            version: the version that is replaced, 0 for none; None: whichever it is.
            actor: who does it.

        Raises:
            InvalidRequest: a setting does not exist, cannot have that value, or is read at the start alone; `param` is
                its name. Nothing is stored.
            Conflict: what is stored is not `version`.
        """

    def history(self, environment: str | None = None, after: str | None = None, limit: int = 20) -> Page[ConfigInfo]:
        """Return a page of the versions of an environment, newest first. Raises NotFound: it has none, and
        InvalidRequest where `after` is no `next`."""

    def roll_back(
        self, to: int, environment: str | None = None, *, version: int | None = None, actor: Actor = PROGRAM
    ) -> ConfigInfo:
        """Have all settings of an older version hold again, as a new version. Arguments as those of `set`.

        Raises:
            NotFound: there is no version `to`.
            Conflict: what is stored is not `version`.
        """

    def delete(self, environment: str, *, version: int | None = None, actor: Actor = PROGRAM) -> None:
        """Delete all that was stored for an environment, its history included. Processes of it, if there are any, go by
        their variables within two seconds. Arguments as those of `set`.

        Raises:
            InvalidRequest: there can be none of that name.
            NotFound: nothing is stored for it.
            Conflict: it is that of this process, or what is stored is not `version`.
        """

class SyncDrSai(SyncCaller):
    """The calls of a `DrSai` for programs without asyncio, from any thread. Use it as `with drsai.sync as sync`.

    A call that is interrupted (KeyboardInterrupt) stops its run, as cancelling the asynchronous one does. Calls from
    inside another event loop (Jupyter) block that one, and work.

    Raises (all calls):
        NotOpened: it is not open, or was closed while the call waited. What is stored stays, and runs are resumed by
            the next process.
        ConfigurationError: it was called from inside the event loop that it would have to wait for.
    """

    drsai: DrSai
    files: SyncFiles
    usage: SyncUsage
    budgets: SyncBudgets
    limits: SyncLimits
    switches: SyncSwitches
    config: SyncConfig

    def open(self) -> None:
        """Start the thread, and open the `DrSai` in it. Raises as `DrSai.open`."""

    def close(self) -> None:
        """Close the `DrSai`, and end the thread. Once more, it does nothing. Raises as `DrSai.close`."""

    def drain(self) -> None:
        """The first part of `close`: take nothing new, and hand the runs over. What is stored can still be read."""

    @cached_property
    def all_runs(self) -> SyncAllRuns:
        """The runs of all users: searched, stopped, paused, resumed, retried."""

    def __init__(self, drsai: DrSai) -> None: ...
    @property
    def db(self) -> SyncDatabaseManager:
        """The database: rows of all tables."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def wait_for(self, call: Callable[[], Awaitable[T]]) -> T:
        """Run something in the event loop of the `DrSai`, and wait for what it returns."""

    def iterate(self, call: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
        """Yield what an asynchronous iterator gives. Leaving early closes it."""
