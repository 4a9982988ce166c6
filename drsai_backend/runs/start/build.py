"""Build makes a fresh team by its factory, binds it to its run and puts it on the turn runtime."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import repeat
from operator import contains
from typing import cast

from autogen_agentchat.agents import UserProxyAgent

# Private: the stock input function, which reads the terminal. tests/teams/test_upstream_agents.py fails when it moves.
from autogen_agentchat.agents._user_proxy_agent import cancellable_input
from autogen_agentchat.teams import BaseGroupChat, MagenticOneGroupChat
from autogen_agentchat.teams._group_chat._graph._digraph_group_chat import GraphFlowManager
from autogen_agentchat.teams._group_chat._round_robin_group_chat import RoundRobinGroupChatManager
from autogen_agentchat.teams._group_chat._swarm_group_chat import SwarmGroupChatManager
from autogen_core import CancellationToken, Image
from autogen_core.model_context import TokenLimitedChatCompletionContext, UnboundedChatCompletionContext
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import Workbench

from drsai_backend import log_context
from drsai_backend.access.principal import Principal
from drsai_backend.agents import RunBound, bind
from drsai_backend.agents.contexts import CompactionContext, EphemeralOutputsContext, OutputsContext
from drsai_backend.catalog import Recipe
from drsai_backend.database.hooks import Draw, Drawn
from drsai_backend.datamodel import utcnow
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.documents.excerpts import REST
from drsai_backend.errors import BudgetReached, ConfigurationError, DrSaiError, InvalidRequest, TeamBuildError
from drsai_backend.json_types import JsonObject, as_object
from drsai_backend.models import CallRecord, RunModelClient, UsageMeter, facade, run_client_of
from drsai_backend.models.calls.run_client import AgentCalls
from drsai_backend.models.calls.seen_images import SeenImages
from drsai_backend.models.endpoints.answers import AnsweredCall
from drsai_backend.runs.events import ModelAnswered, ModelAsked, ModelFailed
from drsai_backend.runs.execution.bounds import Bounds
from drsai_backend.runs.failures import safe_message
from drsai_backend.runs.feed.live_run import Continued, LiveRun
from drsai_backend.runs.messages import CONTINUES, SHOWN
from drsai_backend.runs.requests import InputMessage, Placed, new_run_id
from drsai_backend.runs.start.parameters import NO_RECIPIENTS, RequestRecipients, allot
from drsai_backend.runs.start.plan import Plan
from drsai_backend.runs.start.read import Services, StoredThread
from drsai_backend.runs.transcript import Transcript
from drsai_backend.teams.client_tools.definitions import STORED_AS
from drsai_backend.teams.client_tools.policy import agent_for_tools
from drsai_backend.teams.client_tools.workbench import give_tools
from drsai_backend.teams.context import BuiltTeam, RunContext, build_team
from drsai_backend.teams.hosted_tools import HOSTED_AS, READER, give_hosted_tools
from drsai_backend.teams.limits import LimitReached, RunLimits
from drsai_backend.teams.recall import shown_to
from drsai_backend.teams.replay.memory import bind_memories
from drsai_backend.teams.replay.steps import OwnSteps, Step, TurnSteps
from drsai_backend.teams.replay.tool_calls import ToolCalls, choosing, tool_run_of
from drsai_backend.teams.replay.workbench import RecordedWorkbench
from drsai_backend.teams.resources import HeldResources
from drsai_backend.teams.runtime.wiring import manager_of
from drsai_backend.teams.session import Saying, TeamSession
from drsai_backend.teams.suspension import InputBroker, RunPaused
from drsai_backend.teams.team_tree import TeamTree, answering_agent, as_team, ephemeral_tools, is_a, is_class, tree_of
from drsai_backend.tools.mcp.host import mcp_host

log = logging.getLogger("drsai.run")

# These choose the next speaker without asking a model, so the way to the first boundary costs nothing to repeat.
_CHEAP_MANAGERS = (RoundRobinGroupChatManager, SwarmGroupChatManager, GraphFlowManager)


@dataclass(frozen=True, slots=True)
class BuiltRun:
    """A team that is ready for the thread's state. `tree` is what it is made of, `limits` are those of the request,
    `takes_tools` says whether an agent knows calls of the client's tools, and `user_input` is the columns of its row,
    without the key."""

    team: BaseGroupChat
    tree: TeamTree
    session: TeamSession
    live: LiveRun
    bounds: Bounds
    broker: InputBroker
    steps: TurnSteps
    transcript: Transcript
    limits: RunLimits
    takes_tools: bool
    user_input: Mapping[str, object]
    at: datetime


async def build(
    services: Services, given: Placed, thread: StoredThread | None, plan: Plan, held: HeldResources
) -> BuiltRun:
    """Build the team. `held` takes what it holds open.

    Raises:
        TeamBuildError: the team's factory failed.
    """
    ask, at = given.ask, utcnow()
    run_id = plan.run_id or given.queued or new_run_id()
    resumed = thread if thread is not None and plan.resumes else None
    run = None if resumed is None else resumed.run
    # Whoever answers a question, or has a run resumed: it stays the run of who asked.
    principal = given.who if run is None else Principal.load(given.name.owner, run["principal"])
    context = context_of(services, given, principal, run_id, plan, None if run is None else run["started_at"])
    limits, turns, seconds = ask.how.limits, 0, given.resume.ran
    if run is not None:
        limits = RunLimits(**(run["limits"] or {})).lowered(limits)
        context.meter.start_from(run["usage"] or {}, cast("list[CallRecord] | None", run["calls"]))
        turns, seconds = run["turns"], run["seconds"] + seconds
    bounds = Bounds(given.recipe.limits.lowered(limits), context.meter, turns, seconds)
    if services.hooks.calls_made:
        wanted = services.hooks.exchanges
        bounds.count_each(with_exchanges=any(wants(ask.team) for wants in wanted) if wanted else False)
    broker = InputBroker(list(plan.answers or []), asker=principal)
    context.meter.check = partial(_may_ask, bounds, broker)
    context.meter.tenant = principal.tenant
    context.meter.reserves = services.hooks.drawn
    context.meter.reserve = Reserving(services.hooks.drawn, principal, given.name, run_id, broker)
    log_context.bind_run(given.name.thread_id, run_id)
    mcp_host.set(services.mcp)  # for the task of the run
    tree = await build_team_of(services, given.recipe, context, held)
    recorded = () if resumed is None else resumed.steps
    if ask.continues is not None and (recorded or turns):
        ask = replace(ask, continues=None)  # It is continued already.
    hosted = as_object(ask.extra.get(HOSTED_AS))
    if any(map(contains, plan.texts, repeat(REST))):
        hosted = hosted | {READER: JsonObject()}
    if hosted:
        _host_tools(services, tree, hosted, given.recipe)
    allotted = allot(
        tree,
        ask,
        given.recipe,
        services.models.continues,
        returned=(bool(plan.answers) and bool(broker.results)) or _has_calls(thread, plan),
    )
    live = LiveRun(run_id, given.name, ask.team, int(at.timestamp()), allotted.speakers, ignored=allotted.ignored)
    live.is_taken_over = bool(given.resume.attempt)
    context.meter.is_made_again = lambda: live.is_made_again
    if services.watchers:
        live.watchers = services.watchers
        _watch_calls(live, context.meter)
    if ask.continues is not None:
        live.continued = Continued(tree.agents[0].name, ask.continues)
    steps = TurnSteps((Step(row.agent, row.step, row.digest, row.value) for row in recorded), on_tool=live.emit)
    tree = inject(tree, context, broker, steps, plan.system or None, allotted)
    next_seq = 1 if thread is None else thread.head.last_seq + 1
    stored = resumed.state.configs if resumed is not None and resumed.state is not None else {}
    transcript = Transcript(tree, allotted.shown, stored, 0 if run is None else run["first_seq"])
    session = TeamSession(
        tree.team,
        next_seq=next_seq,
        broker=broker,
        steps=steps,
        known=tree,
        saying=Saying(
            context.meter.answered,
            context.meter.thoughts,
            [text for answer in plan.answers for text in answer.get("told", ())] if plan.answers else [],
            None if allotted.shown == NO_RECIPIENTS.shown else transcript.mark,
        ),
    )
    await session.prepare()
    # Whether the way from the task to the first speaker is worth storing, because a model chose him.
    session.report_first_boundary = type(manager_of(tree.team)) not in _CHEAP_MANAGERS
    of_run = live, bounds, broker, steps, transcript, limits
    return BuiltRun(tree.team, tree, session, *of_run, allotted.client is not None, context.input_values, at)


def _watch_calls(live: LiveRun, meter: UsageMeter) -> None:
    """Tell who watches a run of its model calls."""
    meter.check = partial(_model_asked, live, meter.check)
    meter.each = partial(_model_answered, live, meter.each)
    meter.failed = partial(_model_failed, live)


def _model_asked(live: LiveRun, check: Callable[[], None] | None) -> None:
    if check is not None:
        check()
    live.tell(ModelAsked())


def _model_answered(live: LiveRun, each: Callable[[AnsweredCall], None] | None, record: AnsweredCall) -> None:
    if each is not None:
        each(record)
    if not record.get("cut"):
        live.tell(ModelAnswered(record))


def _model_failed(live: LiveRun, model: str, error: Exception) -> None:
    live.tell(ModelFailed(model, safe_message(error)[0]))


def _host_tools(services: Services, tree: TeamTree, hosted: JsonObject, recipe: Recipe) -> None:
    """Give the agent that answers what the request brings of hosted tools. Nobody gets them where the team leaves tools
    of its clients aside, or its model calls none."""
    agent = agent_for_tools(tree, answering_agent(tree.team, recipe.options.answered_by), recipe.client_tools)
    if agent is not None and recipe.client_tools.mode == "offer":
        give_hosted_tools(agent, hosted, services.own_tools)


def _has_calls(thread: StoredThread | None, plan: Plan) -> bool:
    """Whether a conversation that was had elsewhere holds calls of the client's tools. A run that is resumed finds them
    among its stored messages."""
    if any(each.calls for each in plan.new):
        return True
    return thread is not None and any(role == "calls" for role, _ in thread.imported)


async def build_team_of(services: Services, recipe: Recipe, context: RunContext, held: HeldResources) -> TeamTree:
    # Endpoints and factories repeat keys in what they raise, which is logged.
    if context.api_key is not None:
        log_context.hide(context.api_key)
    try:
        built: BuiltTeam = await build_team(recipe.factory, context)
    except TeamBuildError as error:
        # Its client is told no more than that; what it was is for whoever wrote the factory.
        log.error("team factory failed", extra={"team": recipe.name}, exc_info=error.__cause__ or error)
        raise
    tree = tree_of(as_team(built))
    services.resources.hold(held, recipe.name, tree.parts, fresh=isinstance(recipe.factory, Mapping))
    return tree


async def try_configs(services: Services) -> None:
    """Build each of the operator's teams that is a component config once, so that one which cannot be built is told now
    and not to whoever asks first. Factories in Python may do anything, and are left alone.

    Raises:
        ConfigurationError: says of all that cannot be built why.
    """
    wrong: list[str] = []
    for name in services.catalog.registry:
        recipe, held = services.catalog.own(name), HeldResources()
        factory: object = recipe.factory
        if not isinstance(factory, Mapping):
            continue
        context = RunContext(
            Principal(),
            thread_id="",
            run_id="",
            input_values={},
            db_manager=services.db,
            models=services.models,
            files=services.files,
            tools=services.tools,
            settings=services.settings,
            own_tools=services.own_tools,
            sources=services.sources,
            mcp=services.mcp,
        )
        try:
            tree = tree_of(as_team(await build_team(recipe.factory, context)))
        except DrSaiError as error:
            cause = error.__cause__ or error
            wrong.append(f"team {name!r} cannot be built: {type(cause).__name__}: {' '.join(str(cause).split())}")
        else:
            services.resources.hold(held, name, tree.parts, fresh=True)
            services.resources.release(held)
    if wrong:
        raise ConfigurationError("; ".join(wrong))


def context_of(
    services: Services,
    given: Placed,
    principal: Principal,
    run_id: str,
    plan: Plan,
    began_at: datetime | None = None,
) -> RunContext:
    """Return what the team's factory and its agents know of the run. Its `input_values` are stored as the user
    input."""
    ask, name = given.ask, given.name
    own: dict[str, object] = {} if ask.client_tools is None else {STORED_AS: ask.client_tools.to_json()}
    own |= {} if ask.shown is None else {SHOWN: ask.shown}
    own |= {} if ask.continues is None else {CONTINUES: ask.continues}
    values: dict[str, object] = {
        "user_messages": plan.raw,
        "user_last_message": plan.new[-1].text if plan.new else None,
        "temperature": ask.params.temperature,
        "max_tokens": ask.params.max_tokens,
        "top_p": ask.params.top_p,
        "cache_seed": ask.params.seed,
        "n": ask.n,
        "stream": ask.stream,
        "extra_requests": {**ask.extra, **ask.params.without_columns(), **own},
    }
    who = (principal, name.thread_id, run_id, values)
    rest = (services.db.of_tenant(principal.tenant), services.models, ask.params, ask.api_key)
    return RunContext(
        *who,
        *rest,
        owner=name.owner,
        files=services.files,
        tools=services.tools,
        began_at=began_at,
        settings=services.settings,
        own_tools=services.own_tools,
        sources=services.sources,
        mcp=services.mcp,
        team=ask.team,
    )


def _may_ask(bounds: Bounds, broker: InputBroker) -> None:
    """A model is about to be asked."""
    try:
        bounds.check_tokens()
    except LimitReached as reached:
        raise broker.end(reached) from None


class Reserving:
    """Reserves the model calls of a run: whatever draws any has a say, also what came after the run began.

    Args:
        drawn: the hooks that draw, as they are at each call.
        who: who asked.
        name: the thread.
        run_id: the run.
        broker: ends it.
    """

    def __init__(
        self, drawn: Mapping[str, Drawn], who: Principal, name: ThreadName, run_id: str, broker: InputBroker
    ) -> None:
        self._drawn, self._of, self._broker = drawn, (who, name, run_id), broker
        self._draws: dict[str, Draw] = {}
        if drawn:
            self._look()

    def _look(self) -> None:
        """Find what draws calls now, and did not before."""
        who, thread, run_id = self._of
        for name, hook in self._drawn.items():
            if name not in self._draws and (draw := hook(who.owner, who.key_id, thread, run_id)) is not None:
                self._draws[name] = draw

    async def __call__(
        self, model: str, prompt: Callable[[], int], answer: int | None
    ) -> Callable[[bool], None] | None:
        """See `Reserve`: a model is about to be asked."""
        self._look()
        if not self._draws:
            return None
        ends: list[Callable[[bool], None]] = []

        def ended(is_answered: bool) -> None:
            for end in ends:
                end(is_answered)

        try:
            tokens = prompt()
            for draw in [*self._draws.values()]:
                ends.append(await draw(model, tokens, answer))
        except BudgetReached as reached:
            ended(False)
            raise self._broker.report(RunPaused(reached.code, reached.message)) from None
        return ended


def inject(
    tree: TeamTree,
    context: RunContext,
    broker: InputBroker,
    steps: TurnSteps | None = None,
    prompt: str | None = None,
    allotted: RequestRecipients | None = None,
) -> TeamTree:
    """Bind all parts of a team, nested teams, wrapped agents and agents used as tools included, to this run. Returns
    what the team is made of then.

    Agents and group chats of this package get `_db_manager` and `_run_context`, and ask through `broker`; so does a
    `UserProxyAgent` without an input function of its own. Every model client is metered and takes the request's
    parameters. What models answer and tools return is recorded in `steps`, or given again from there. `prompt`, the
    client's system message, goes with every request of every agent, Magentic-One's orchestrator among them. `allotted`
    says which agent answers in the request's form, and which one gets the client's tools.
    """
    steps, allotted = steps or TurnSteps(), allotted or NO_RECIPIENTS
    tree = _bound(tree, context, broker)
    cache: dict[object, object] = {}
    repeats = steps.repeats
    owner = context.owner or context.principal.owner
    images = None if context.files is None else partial(SeenImages, context.files, owner, context.models.images)
    for path, part in tree.parts.items():
        cls, agent = type(part), steps.agent(path)
        if isinstance(part, OwnSteps):
            part.bind_steps(agent)
        manages = is_class(cls, BaseGroupChat) or getattr(part, "asks_as_manager", False)
        speaks = not manages or is_class(cls, MagenticOneGroupChat)
        workbenches: list[Workbench] | None = getattr(part, "_workbench", None)
        offer = None
        if workbenches:
            calls = ToolCalls(agent, broker, tool_run_of(part, context, cache), context.models.switches)
            recorded = [RecordedWorkbench(each, calls, place) for place, each in enumerate(workbenches)]
            setattr(part, "_workbench", recorded)  # noqa: B010 - no class of this package declares it
            if allotted.client is not None and part is allotted.client:
                offer = give_tools(allotted.client, allotted.tools, calls).offer
        model_context = _bind_context(part, ephemeral_tools(workbenches or ()))
        if is_a(model_context, CompactionContext):
            model_context.bind_run(agent.once, lambda client: _summarising(client, context))
        elif is_a(model_context, TokenLimitedChatCompletionContext):
            agent.bind_view(model_context)
        model_client = getattr(part, "_model_client", None)
        if isinstance(model_client, ChatCompletionClient):
            run_client = run_client_of(model_client) or RunModelClient(
                model_client, params=context.params, meter=context.meter, rules=context.models.rules
            )
            if run_client.meter is not context.meter and run_client.calls_in_text:
                run_client = run_client.of_run(context.params, context.meter, context.models.rules)
            # A client of its own, for two agents may share one and their answers must not be mixed up.
            asking = AgentCalls(
                agent,
                prompt if speaks else None,
                choosing(part, agent, offer, allotted.choice if part is allotted.chooser else None),
                speaker=str(getattr(part, "name", "")) or None,
                answers=part is allotted.formed,
                asks=allotted.continuing,
                images=images if workbenches else None,
                recall=None if context.recalling is None else shown_to(path, part, tree, context.recalling, agent),
                known=agent.known if repeats else None,
            )
            agent.model = run_client.inner
            bind_memories(part, agent)
            run_client = run_client.with_steps(asking, manages=manages)
            setattr(part, "_model_client", facade(run_client))  # noqa: B010 - as above
        if is_class(cls, UserProxyAgent) and getattr(part, "input_func", None) is cancellable_input:
            setattr(part, "input_func", _asking(part.name, path, broker))  # noqa: B010 - as above
            setattr(part, "_is_async", True)  # noqa: B010 - AutoGen derives it once, from the function it was given
    return tree


def _bind_context(part: object, marked: Mapping[str, int]) -> object:
    """The context of an agent, which shows of the outputs of its `marked` tools the newest only."""
    found = getattr(part, "_model_context", None)
    if marked and type(found) is UnboundedChatCompletionContext:
        # AutoGen's default one shows all; a state of the one is a state of the other.
        found = EphemeralOutputsContext(initial_messages=found._messages)  # pyright: ignore[reportPrivateUsage]
        setattr(part, "_model_context", found)  # noqa: B010 - no class of this package declares it
    if isinstance(found, OutputsContext):
        found.bind_tools(marked)
    return found


def _bound(tree: TeamTree, context: RunContext, broker: InputBroker) -> TeamTree:
    prepares = False
    for path, part in tree.parts.items():
        if isinstance(part, RunBound):
            bind(part, context, partial(broker.ask, path=path))
            prepares = prepares or type(part).bind_run is not RunBound.bind_run
    # It may have given itself a tool, a memory or another context.
    return tree_of(tree.team) if prepares else tree


def _summarising(client: ChatCompletionClient, context: RunContext) -> RunModelClient:
    """The client as one that summarises: metered; the request's parameters are for answers to the user."""
    known = run_client_of(client)
    inner = client if known is None else known.inner
    return RunModelClient(inner, meter=context.meter, rules=context.models.rules, messages=known and known.messages)


def refuse_unseen_images(team: BaseGroupChat, messages: Sequence[InputMessage]) -> None:
    """AutoGen leaves images out of what it sends to a model that sees none; whoever sent them would not know.

    Raises:
        InvalidRequest: there are images, and each agent of the team has a model that sees none.
    """
    if not any(
        isinstance(part, Image)
        for message in messages
        if not isinstance(message.content, str)  # A text has none, and may be long.
        for part in message.content
    ):
        return
    agents = [agent for agent in tree_of(team).agents if not is_class(type(agent), UserProxyAgent)]
    clients = [getattr(agent, "_model_client", None) for agent in agents]
    if agents and all(isinstance(each, ChatCompletionClient) and not each.model_info["vision"] for each in clients):
        raise InvalidRequest(
            "the model behind this team sees no images: send text alone, ask another model, or, if it does see them, "
            "have DRSAI_MODEL_VISION=true set",
            param="messages",
        )


def _asking(name: str, path: str, broker: InputBroker) -> Callable[[str, CancellationToken | None], Awaitable[str]]:
    async def ask(prompt: str, cancellation_token: CancellationToken | None) -> str:
        return broker.ask(name, prompt, path=path)

    return ask
