"""The errors of this package are all here, as far as it raises them on purpose.

::

    DrSaiError
    ├── InvalidRequest            400  bad input; `param` names the field
    │   ├── UnknownModel          404  no team of that name
    │   ├── UnknownPlace               the thread has no such message, turn or branch; `param` names which of these
    │   ├── ParameterRefused           the model endpoint does not take a parameter of the request; `param` names it
    │   ├── RefusedAddress             a URL leads to an address that this server must not reach
    │   └── DocumentUnreadable         a file cannot be read as a document: it is broken, or stops its reader
    │       ├── DocumentUnsupported    it is of no kind that is read here
    │       ├── DocumentProtected      it has a password
    │       ├── DocumentEmpty          it has no text
    │       └── DocumentTooLarge  413  it needs more bytes, pages, time or memory than one file may
    ├── Unauthenticated           401  no key or token, or one that is not valid
    ├── InsufficientScope         403  the key or token does not allow this; `scope` names what is missing
    ├── Forbidden                 403  the thread or question may be seen, and this not done with it
    ├── NotFound                  404  no such thread, run or row (a foreign one counts as none)
    ├── Conflict                  409  what is stored moved on; nothing was written
    │   ├── ThreadBusy                 a run is live on the thread
    │   ├── OtherModel                 the thread is a conversation with another model
    │   ├── IllegalTransition          the status does not allow that change
    │   ├── MessagesChanged            stored messages are append-only
    │   ├── StaleAnswer                the question was answered, withdrawn, or its time is over
    │   ├── LeaseLost                  another worker owns the thread now
    │   ├── JobLost                    another worker has the job now, or it is gone
    │   └── IdempotencyMismatch        the key was used with another request
    ├── StateError                     stored state that cannot be used; the thread keeps what it had
    │   ├── DamagedState          422
    │   └── UnsupportedStateVersion 422
    ├── RunFailed                 424  a run ended as ERROR; the text is safe to show
    ├── EndpointFailed            502  a model endpoint gives no answer that can be used
    │   ├── EndpointTimeout       504  it did not answer in time
    │   └── EndpointBusy          429  its rate limit is used up
    ├── TooManyRequests           429  a limit of requests, tokens or runs is reached; `after` says for how long
    ├── BudgetReached             429  a budget of tokens or money is used up
    ├── TooManyWebhooks           429  too many webhooks of the user have not arrived yet
    ├── TooManyJobs               429  too many jobs of the user are not done yet
    ├── ToolError                      a tool call failed; the text is safe, and meant for the model
    │   └── TransientToolError         trying again may help
    ├── ReplayMismatch            500  a repeated turn does not ask what was recorded of it
    ├── TeamBuildError            500  a team factory failed; nothing was stored
    ├── ConfigurationError        500  settings or arguments that cannot work
    ├── NotOpened                 503  `DrSai` is used before it was opened, after it was closed, or in another loop
    ├── ShuttingDown              503  this process takes nothing new; another one does
    ├── SwitchedOff               503  an operator has switched it off; the text is the operator's
    └── DatabaseError             503
        ├── DatabaseUnavailable        cannot be reached, or gave up
        └── SchemaOutdated             run `drsai db upgrade`

The text of each is safe to show to a client: it names fields and threads, never secrets, SQL or a traceback.
"""

from __future__ import annotations

import re
from typing import ClassVar, Self


class DrSaiError(Exception):
    """Base class. `code` is stable and machine-readable, `status` the HTTP status the API answers with, `message` the
    text, and `param` the field that it is about, if it is about one."""

    code: ClassVar[str] = "internal_error"
    status: ClassVar[int] = 500

    def __init_subclass__(cls, *, code: str | None = None, status: int | None = None) -> None:
        cls.code = code or cls.code
        cls.status = status or cls.status

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class InvalidRequest(DrSaiError, code="invalid_request", status=400):
    """Input that cannot be accepted. `param` names the offending field."""


class UnknownModel(InvalidRequest, code="model_not_found", status=404):
    """The request names a model (team) that is not served here."""


class UnknownPlace(InvalidRequest):
    """The thread has no such message, turn or branch, or none that was kept. `param` names which of these."""


class ParameterRefused(InvalidRequest, code="parameter_refused"):
    """The model endpoint has refused a parameter of the request. The run has ended as ERROR, its message is stored."""

    @classmethod
    def of(cls, param: str) -> Self:
        """The error for a parameter. Its text names the parameter, and nothing of what the endpoint says."""
        return cls(f"the model endpoint refuses the parameter `{param}`: change it or leave it out", param=param)

    @classmethod
    def stored(cls, text: str) -> Self:
        """The error whose text is part of a stored one."""
        found = re.search(r"refuses the parameter `(\w+)`", text)
        return cls(text, param=None if found is None else found[1])


class RefusedAddress(InvalidRequest, code="address_refused"):
    """A URL that somebody else named leads to an address that this server must not reach. Nothing was sent."""


class Unauthenticated(DrSaiError, code="invalid_api_key", status=401):
    """The request has no API key or token, or one that is not valid. The text does not repeat it."""


class InsufficientScope(DrSaiError, code="insufficient_scope", status=403):
    """The key or token is valid and does not allow this. `scope` is what it lacks."""

    def __init__(self, message: str, *, scope: str | None = None, param: str | None = None) -> None:
        super().__init__(message, param=param)
        self.scope = scope


class Forbidden(DrSaiError, code="forbidden", status=403):
    """Who asks may see the thread or the question, and not do this with it. Nothing was stored."""


class NotFound(DrSaiError, code="not_found", status=404):
    """No such thread, run or row for this user."""


class Conflict(DrSaiError, code="conflict", status=409):
    """What is stored differs from what the writer had read. Nothing was written."""


class ThreadBusy(Conflict, code="thread_busy"):
    """A run is live on this thread."""


class OtherModel(Conflict, code="other_model"):
    """The thread is a conversation with another model, and does not go over to this one."""


class IllegalTransition(Conflict, code="illegal_transition"):
    """The thread's status does not allow that change."""


class MessagesChanged(Conflict, code="messages_changed"):
    """Stored messages are append-only: the given list does not start with them."""


class StaleAnswer(Conflict, code="input_request_stale"):
    """The question is not the one that the thread waits for: answered already, withdrawn, or its time is over."""


class LeaseLost(Conflict, code="lease_lost"):
    """This worker no longer owns the thread."""


class JobLost(Conflict, code="job_lost"):
    """This worker no longer has the job: another one has taken it up, or it was cancelled."""


class IdempotencyMismatch(Conflict, code="idempotency_mismatch"):
    """The idempotency key was used before with a different request."""


class StateError(DrSaiError, code="state_error", status=422):
    """A stored state that cannot be used. The thread keeps what it had."""


class DamagedState(StateError, code="state_damaged"):
    """The state fails its checksum or is not what it claims to be."""


class UnsupportedStateVersion(StateError, code="state_version_unsupported"):
    """The state was written by a later version of this package."""


class RunFailed(DrSaiError, code="run_failed", status=424):
    """A run ended as ERROR. The status is one that clients do not repeat by themselves, as many do a 5xx: the run has
    taken the message, and may have done things. `__cause__` holds the original exception when the run was in this
    process.

    The message names team, agent, what kind of thing failed, thread and run, and is safe to show. So do the attributes:
    `run_code` says what failed ("model_auth", "timeout", … or "run_failed"), `team` and `agent` where (None: no agent
    raised it, or another process ran it), `thread_id` and `run_id` which run it was.
    """

    def __init__(
        self,
        message: str,
        *,
        run_code: str | None = None,
        team: str | None = None,
        agent: str | None = None,
        thread_id: str | None = None,
        run_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.run_code = run_code
        self.team = team
        self.agent = agent
        self.thread_id = thread_id
        self.run_id = run_id


class EndpointFailed(DrSaiError, code="model_error", status=502):
    """A model endpoint that was asked for a client directly, for embeddings, gives no answer that can be used."""


class EndpointTimeout(EndpointFailed, code="model_timeout", status=504):
    """It did not answer in time."""


class EndpointBusy(EndpointFailed, code="model_rate_limit", status=429):
    """Its rate limit or quota is used up."""


class TooManyRequests(DrSaiError, code="rate_limit_exceeded", status=429):
    """A limit of requests, tokens or runs is reached. Nothing was stored. `after`: in how many seconds to ask again."""

    def __init__(self, message: str, *, after: float, param: str | None = None) -> None:
        super().__init__(message, param=param)
        self.after = after


class BudgetReached(DrSaiError, code="insufficient_quota", status=429):
    """A budget of tokens or money is used up, until its day or month is over. Nothing was stored."""


class TooManyWebhooks(DrSaiError, code="too_many_webhooks", status=429):
    """A run that is to be told of, while too many webhooks of its user have not arrived yet. Nothing was stored."""


class TooManyJobs(DrSaiError, code="too_many_jobs", status=429):
    """A job, while too many of its user and kind are not done yet. Nothing was stored."""


class FileTooLarge(InvalidRequest, code="file_too_large", status=413):
    """A file has more bytes than this server accepts, or than can be read where it is named. Nothing was stored."""


class FilesFull(InvalidRequest, code="files_full", status=413):
    """The files of a user may have no more bytes. Nothing was stored."""


class DocumentUnreadable(InvalidRequest, code="document_unreadable"):
    """A file cannot be read as a document: it is broken, or its reader has crashed on it. The text is for who has
    uploaded it."""


class DocumentUnsupported(DocumentUnreadable, code="document_unsupported"):
    """The file is of no kind that is read here."""


class DocumentProtected(DocumentUnreadable, code="document_protected"):
    """The file has a password."""


class DocumentEmpty(DocumentUnreadable, code="document_empty"):
    """The file has no text: no bytes, or nothing but pictures."""


class DocumentTooLarge(DocumentUnreadable, code="document_too_large", status=413):
    """The file needs more bytes, pages, time or memory than the reading of one file may use."""


class ToolError(DrSaiError, code="tool_error"):
    """Raised by a tool: the call failed, and the text tells the model why. Nothing of it is logged as a traceback."""


class TransientToolError(ToolError, code="tool_error_transient"):
    """Raised by a tool when trying again may help: `ToolOptions.retries` says how often that is done. `after`: not
    before so many seconds have passed."""

    def __init__(self, message: str, *, after: float = 0.0, param: str | None = None) -> None:
        super().__init__(message, param=param)
        self.after = after


class ReplayMismatch(DrSaiError, code="replay_mismatch"):
    """A turn that is repeated asks a model, or calls a tool, otherwise than it did when its answers were recorded."""


class TeamBuildError(DrSaiError, code="team_build_failed"):
    """A team factory raised, or returned something that is no agent or team. Nothing was stored."""


class ConfigurationError(DrSaiError, code="configuration_error"):
    """Settings or arguments that cannot work together."""


class NotInstalled(DrSaiError, code="not_installed", status=501):
    """What is asked for needs a package that is not installed here. The text says which."""


class NotOpened(DrSaiError, code="not_opened", status=503):
    """`DrSai` is used before it was opened, after it was closed, or in another event loop. The text says what to write.

    A mounted application whose lifespan nobody ran answers every request with it.
    """


class ShuttingDown(DrSaiError, code="shutting_down", status=503):
    """This process is shut down and takes nothing new. Nothing was stored."""


class SwitchedOff(DrSaiError, code="switched_off", status=503):
    """An operator has switched off what is asked for: the text is the operator's. Nothing was stored of a request that
    is refused so. `after`: in how many seconds it is on again; None: nobody knows."""

    def __init__(self, message: str, *, after: float | None = None, param: str | None = None) -> None:
        super().__init__(message, param=param)
        self.after = after


class DatabaseError(DrSaiError, code="database_error", status=503):
    """The database refused or failed."""


class DatabaseUnavailable(DatabaseError, code="database_unavailable"):
    """The database cannot be reached."""


class SchemaOutdated(DatabaseError, code="schema_outdated"):
    """The database schema is older (or newer) than this package. Run `drsai db upgrade`."""
