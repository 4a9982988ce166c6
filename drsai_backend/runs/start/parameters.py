"""Parameters of a request are given to those agents and model clients of a built team that take them."""

from __future__ import annotations

from typing import Final, NamedTuple

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import BaseGroupChat
from autogen_core.models import ChatCompletionClient

from drsai_backend.catalog import Recipe
from drsai_backend.errors import InvalidRequest, TeamBuildError
from drsai_backend.models import ContinueRules, ContinuingClient, ModelParams, ProfileClient, run_client_of
from drsai_backend.models.answer import Asked
from drsai_backend.models.calls.run_client import takes_parameter
from drsai_backend.runs.requests import Ask
from drsai_backend.teams.client_tools.definitions import ClientTools
from drsai_backend.teams.client_tools.policy import agent_for_tools
from drsai_backend.teams.shown import Shown, shown_of
from drsai_backend.teams.team_tree import Part, TeamTree, answering_agent, is_a, known_tools

_ASK: Final = "end `messages` with one of the user's that asks for it, such as 'Continue.'"
_CANNOT: Final = f"this model continues no answer that `messages` ends with (see DRSAI_MODEL_CONTINUES): {_ASK}"
_SEVERAL: Final = f"a group chat continues no answer that `messages` ends with, which several may have given: {_ASK}"


class ExpectedRun(NamedTuple):
    """What a team alone tells of a run: how many agents may speak, and which fields of the request nobody of
    the team takes (`RequestRecipients.ignored`)."""

    speakers: int
    ignored: tuple[str, ...] = ()


class RequestRecipients(NamedTuple):
    """Who of a team takes what of a request. None: nobody, or the request asks for nothing of the kind.

    Attributes:
        speakers: how many agents may speak in the answer.
        ignored: the parameters that no model client of the team takes; before them `tools`, where there are some of
            the client's and no agent is offered them.
        formed: the agent that answers in the `response_format`.
        client: the agent that makes calls of the client's tools, or is given their results.
        tools: those of the client's that it is offered.
        continuing: what makes the calls of the lone agent, which continues an answer.
        chooser: the agent that answers, where the request says which of its own tools it calls.
        choice: what it says of them.
        shown: whose messages are the answer.
    """

    speakers: int
    ignored: tuple[str, ...]
    formed: Part | None
    client: AssistantAgent | None
    tools: ClientTools | None
    continuing: Asked | None
    chooser: Part | None
    choice: ClientTools | None
    shown: Shown

    @property
    def outlook(self) -> ExpectedRun:
        """What a client is to know before the run begins."""
        return ExpectedRun(self.speakers, self.ignored)


NO_RECIPIENTS: Final = RequestRecipients(0, (), None, None, None, None, None, None, Shown())


def allot(
    tree: TeamTree,
    ask: Ask,
    recipe: Recipe,
    continues: ContinueRules,
    *,
    returned: bool = False,
) -> RequestRecipients:
    """Find who takes what of a request. `returned`: results of the client's tools have come.

    Raises:
        InvalidRequest: no agent of the team can answer in the request's form, or none is offered the client's tools
            and one is to be called, or the one that answers has no tool that is to be called; or an answer is to be
            continued, and it cannot.
        TeamBuildError: the team has no participant of the name that its setting says.
    """
    team, params, tools, choice, policy = tree.team, ask.params, ask.client_tools, None, recipe.client_tools
    if tools is not None and tools.is_of_agent:
        tools, choice = None, tools
    needs_tools = tools is not None or returned
    answering = client = None
    if needs_tools or choice is not None or params.response_format is not None:
        answering = answering_agent(team, recipe.options.answered_by)
    if needs_tools:
        client = agent_for_tools(tree, answering, policy)
    offered = tools if client is not None and policy.mode == "offer" else None
    ignored = ignored_parameters(tree, params)
    if tools is not None and offered is None:
        if tools.choice == "required" and ask.messages:
            raise InvalidRequest(
                f"model {ask.team!r} calls no tools of its clients, so none can be demanded", param="tool_choice"
            )
        ignored = ("tools", *ignored)
    if choice is not None:
        _check_choice(answering, choice, ask.team)
    continuing = None if ask.continues is None else _continuing(team, continues, ask.continues)
    formed = _formed(answering, params)
    chooser = None if choice is None else answering
    names = [each.name for each in tree.agents if not getattr(each, "only_thinks", False)]
    # A lone agent says one message, and it is shown as it comes.
    is_lone = len(names) == len(team._participants) == team._max_turns == 1  # pyright: ignore[reportPrivateUsage]
    shown = _shown(tree, None if is_lone else formed, ask, recipe)
    speaking = names if shown.names is None else [name for name in names if name in shown.names]
    speakers = 1 if shown.is_last else len(speaking)
    return RequestRecipients(speakers, ignored, formed, client, offered, continuing, chooser, choice, shown)


def _shown(tree: TeamTree, formed: Part | None, ask: Ask, recipe: Recipe) -> Shown:
    """Return whose messages are the answer. `formed`: the agent of several that answers in a form: as JSON, of its
    messages one alone can be read."""
    choice, form = ask.shown, ask.params.response_format or {"type": "text"}
    if choice is None and formed is not None and form["type"] != "text":
        return Shown(frozenset({formed.name}), is_last=True)
    try:
        return shown_of(tree, choice or recipe.options.shown)
    except ValueError as error:
        raise (TeamBuildError if choice is None else InvalidRequest)(str(error), param="shown") from None


def _check_choice(answering: Part | None, choice: ClientTools, team: str) -> None:
    """Raise InvalidRequest unless the answering agent has the tools of a choice, as far as that is known: those of a
    server are listed in the run."""
    known = known_tools(answering)
    if known is None or choice.choice == "none":
        return
    for name in [None] if choice.only is None else choice.only:
        if name not in known and (name is not None or not known):
            has = f"has {', '.join(sorted(known))}" if known else "has none"
            what = "demands a tool" if name is None else f"names {name!r}"
            text = f"`tool_choice` {what}, and the agent that answers for {team!r} {has}; the request offers none"
            raise InvalidRequest(text, param="tool_choice")


def _continuing(team: BaseGroupChat, rules: ContinueRules, text: str) -> Asked:
    """Return what continues an answer. Who of a group chat has given it, and what was said before it in the same run,
    is not known; nor is how an agent of a class of its own asks its model."""
    if len(team._participants) != 1 or is_a(team._participants[0], BaseGroupChat):  # pyright: ignore[reportPrivateUsage]
        raise InvalidRequest(_SEVERAL, param="messages")
    agent = answering_agent(team)
    client: object = getattr(agent, "_model_client", None)
    run_client = run_client_of(client)
    inner = client if run_client is None else run_client.inner
    if is_a(agent, AssistantAgent) and isinstance(inner, ChatCompletionClient):
        profile = inner if isinstance(inner, ProfileClient) else None
        own = None if profile is None else profile.primary.profile.can.continuation
        form = own or rules.of(inner if profile is None else profile.continuing_client())
        if form != "no":
            return ContinuingClient(inner, form, text) if profile is None else profile.continuing(form, text)
    raise InvalidRequest(_CANNOT, param="messages")


def _formed(answering: Part | None, params: ModelParams) -> Part | None:
    form = params.response_format
    if form is None:
        return None
    client: object = getattr(answering, "_model_client", None)
    if isinstance(client, ChatCompletionClient) and takes_parameter(client, "response_format"):
        return answering
    if form.get("type") == "text":
        return None
    raise InvalidRequest("no agent of this team can answer in a form: leave it out", param="response_format")


def ignored_parameters(tree: TeamTree, params: ModelParams) -> tuple[str, ...]:
    """The names of the parameters of a request that no model client of the team takes."""
    names = params.create_args()
    if not names:
        return ()
    found: list[object] = [getattr(part, "_model_client", None) for part in tree.parts.values()]
    clients = [each for each in found if isinstance(each, ChatCompletionClient)]
    return tuple(name for name in names if not any(takes_parameter(client, name) for client in clients))
