"""The members of a plan-execute team are who plans, who has a person check the plan, who does steps, who answers."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    ModelClientStreamingChunkEvent,
    MultiModalMessage,
    TextMessage,
    ThoughtEvent,
)
from autogen_core import CancellationToken
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    UserMessage,
)
from autogen_core.tools import ParametersSchema, ToolSchema

from drsai_backend.agents import DrSaiAgent, DrSaiAgentMixin
from drsai_backend.datamodel.task_lists import TaskMark, TaskStatus, dump_mark
from drsai_backend.errors import DrSaiError, EndpointFailed, InvalidRequest
from drsai_backend.models.calls.run_client import takes_parameter
from drsai_backend.models.fallback.failures import failure_of
from drsai_backend.strategies.plan_execute import prompts
from drsai_backend.strategies.plan_execute.board import Next
from drsai_backend.strategies.plan_execute.plan import (
    Plan,
    PlanError,
    Step,
    check_plan,
    read_plan,
    shown_plan,
)
from drsai_backend.teams.kept_calls import calls_in
from drsai_backend.teams.suspension import parse_decision

if TYPE_CHECKING:
    from drsai_backend.strategies.plan_execute.team import PlanExecuteManager

_log = logging.getLogger("drsai.team")

Said = BaseAgentEvent | BaseChatMessage | Response


class Member:
    """Mixin of all of them. `desk` is set when the team's manager is made.

    Attributes:
        hears: what is said in the team reaches it.
        only_thinks: a client is shown nothing of it but thoughts.
    """

    hears: ClassVar[bool] = False
    only_thinks: ClassVar[bool] = True
    desk: PlanExecuteManager


def _thought(
    agent: BaseChatAgent,
    text: str,
    mark: TaskMark | None,
    inner: Sequence[BaseAgentEvent | BaseChatMessage] | None = None,
) -> Response:
    """Return what a member says, as an event: AutoGen keeps and shows it as any answer; no other agent hears it, and a
    client is shown it as a thought."""
    event = ThoughtEvent(content=text, source=agent.name, metadata={} if mark is None else dump_mark(mark))
    return Response(chat_message=cast("BaseChatMessage", event), inner_messages=list(inner or ()))


class Planner(Member, DrSaiAgent):
    """Makes the plan, and another one where the first does not hold."""

    hears = True
    REPAIRS: ClassVar[int] = 2
    """How often a plan that cannot be followed goes back to the model."""

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Said, None]:
        for message in messages:
            await self._model_context.add_message(message.to_model_message())
        desk, board = self.desk, self.desk.board
        most = max(1, board.bounds.max_steps - board.used)
        asked: list[LLMMessage] = [*self._system_messages, *await self._model_context.get_messages()]
        if extra := prompts.to_plan(board, await desk.tools()):
            _insert(asked, extra)
        thoughts: list[ThoughtEvent] = []
        problem = ""
        for _ in range(1 + self.REPAIRS):
            answer = await _ask_for_plan(self._model_client, asked, cancellation_token)
            if answer.thought:
                thoughts.append(ThoughtEvent(content=answer.thought, source=self.name))
                yield thoughts[-1]
            text = _text_of(answer)
            try:
                steps = read_plan(text)
                done = [each.id for each in board.tasks.values() if each.status is TaskStatus.DONE]
                check_plan(steps, most=most, taken=board.taken, done=done)
            except PlanError as error:
                problem = str(error)
                asked.append(AssistantMessage(content=text or "(nothing)", source=self.name))
                asked.append(
                    UserMessage(
                        content=f"This plan cannot be followed: {problem}. Give the whole plan again.", source="user"
                    )
                )
                continue
            title = "Plan:" if board.list is None else "New plan:"
            shown = shown_plan(steps, title) if steps else "Plan: nothing has to be done before the answer."
            response = _thought(self, shown, board.planned(desk.list_id, desk.task, steps), thoughts)
            response.chat_message.models_usage = answer.usage
            yield response
            return
        yield _thought(self, f"No plan could be made: {problem}.", board.unplanned(desk.list_id, desk.task), thoughts)


async def _ask_for_plan(
    client: ChatCompletionClient, messages: Sequence[LLMMessage], token: CancellationToken
) -> CreateResult:
    """Ask for JSON in the strongest way that the model knows."""
    info = client.model_info
    if info.get("structured_output") and takes_parameter(client, "response_format"):
        # Not by `json_output`: that raises where an answer does not fit, which can be mended.
        args = {"response_format": _PLAN_FORM}
        return await client.create(messages, extra_create_args=args, cancellation_token=token)
    if info.get("structured_output"):
        return await client.create(messages, json_output=Plan, cancellation_token=token)
    if info["json_output"]:
        return await client.create(messages, json_output=True, cancellation_token=token)
    if info["function_calling"]:
        return await client.create(messages, tools=[_PLAN_TOOL], tool_choice="required", cancellation_token=token)
    return await client.create(messages, cancellation_token=token)


def _text_of(answer: CreateResult) -> str:
    if isinstance(answer.content, str):
        return answer.content
    return "\n".join(call.arguments for call in answer.content)


_SCHEMA = Plan.model_json_schema()
_PLAN_FORM = {"type": "json_schema", "json_schema": {"name": "Plan", "schema": _SCHEMA, "strict": True}}
_PLAN_TOOL = ToolSchema(
    name="make_plan",
    description="Hands in the plan.",
    parameters=ParametersSchema(
        type="object",
        properties={"steps": {**_SCHEMA["properties"]["steps"], "items": _SCHEMA["$defs"]["Step"]}},
        required=["steps"],
        additionalProperties=False,
    ),
    strict=True,
)


class PlanChecker(Member, DrSaiAgentMixin, BaseChatAgent):
    """Asks a person what they think of the plan."""

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        pass

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        board = self.desk.board
        waiting = [board.tasks[each] for each in board.waiting]
        steps = [Step(id=each.id, do=each.do, needs=list(each.needs)) for each in waiting]
        prompt = shown_plan(steps, "This is the plan:") + (
            '\n\nAnswer \'approve\', \'edit {"steps": [{"id": …, "do": …, "needs": […]}]}\', \'reject\', or say what '
            "is to be different."
        )
        asked = prompt
        while True:
            said = (await self.request_input(asked)).strip()
            try:
                decision = parse_decision(said, {"type": "approval", "choices": ("approve", "edit", "deny")})
            except InvalidRequest:
                if not said.casefold().startswith("edit"):
                    return self._refused(said)
                asked = f"The edited plan is no JSON object.\n\n{prompt}"
                continue
            if decision["decision"] == "approve":
                return _thought(self, "The plan is approved.", board.accepted())
            if decision["decision"] == "deny":
                return self._refused(str(decision["reason"] or ""))
            try:
                edited = read_plan(json.dumps(decision["arguments"]))
                kept = [each for each in board.taken if each not in board.waiting]
                done = [each for each in kept if board.tasks[each].status is TaskStatus.DONE]
                check_plan(edited, most=max(1, board.bounds.max_steps - board.used), taken=kept, done=done)
            except PlanError as error:
                asked = f"The edited plan cannot be followed: {error}.\n\n{prompt}"
                continue
            return _thought(self, shown_plan(edited, "The plan was edited:"), board.changed(edited))

    def _refused(self, reason: str) -> Response:
        board = self.desk.board
        for_good = not reason or not board.may_replan
        text = reason or "The plan is rejected."
        return _thought(self, text, board.refused(for_good=for_good))


class Executor(Member, DrSaiAgent):
    """Does one step in a turn, knowing the task, the step and what it needs."""

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Said, None]:
        desk, board = self.desk, self.desk.board
        step = board.batch[desk.place_of(self.name)]
        # An attempt may have come to no end: the calls that it has made stay made.
        made = calls_in(await self._model_context.get_messages())
        await self._model_context.clear()
        for each in made:
            await self._model_context.add_message(each)
        prompt = prompts.to_do(board, step, desk.task, desk.added)
        told: BaseChatMessage = TextMessage(content=prompt, source="user")
        if desk.images:
            told = MultiModalMessage(content=[prompt, *desk.images], source="user")
        ended: Response | None = None
        text = ""
        try:
            async for item in super().on_messages_stream([told], cancellation_token):
                if isinstance(item, Response):
                    ended, text = item, item.chat_message.to_text()
                elif not isinstance(item, ModelClientStreamingChunkEvent):
                    yield item
        except Exception as error:
            why = _no_answer(error)
            if why is None:
                raise
            _log.warning("an attempt at step %s of a plan failed", step, exc_info=error)
            text = f"FAILED: the model gave no answer: {why}"
        if ended is not None:
            # What it knew of this step is of no use for another one, and not worth storing.
            await self._model_context.clear()
        outcome, said = prompts.outcome_of(text)
        word = {"done": "done", "failed": "failed", "replan": "wants another plan"}[outcome]
        inner = None if ended is None else ended.inner_messages
        response = _thought(self, f"Step {step} {word}:\n\n{said}", board.ends_as(step, outcome), inner)
        response.chat_message.models_usage = None if ended is None else ended.chat_message.models_usage
        yield response


def _no_answer(error: Exception) -> str | None:
    """Return why a model gave no answer, in words that tell nothing of its endpoint; None: that is not what has
    happened, or asking again would not help."""
    if isinstance(error, EndpointFailed):
        return "its endpoint failed"
    failure = None if isinstance(error, DrSaiError) else failure_of(error)
    return None if failure is None else failure.text()


class Answerer(Member, DrSaiAgent):
    """Answers the task from what the steps have given."""

    hears = True
    only_thinks = False

    async def on_messages_stream(
        self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken
    ) -> AsyncGenerator[Said, None]:
        board, context = self.desk.board, self._model_context
        if board.next()[0] is Next.REFUSED:
            for message in messages:
                await context.add_message(message.to_model_message())
            await context.add_message(AssistantMessage(content=prompts.REJECTED, source=self.name))
            yield Response(chat_message=TextMessage(content=prompts.REJECTED, source=self.name))
            return
        note = prompts.left_over(board)
        self._model_context = _Told(context, prompts.to_answer(board, self.desk.task))
        try:
            async for item in super().on_messages_stream(messages, cancellation_token):
                if isinstance(item, Response) and note and isinstance(item.chat_message, TextMessage):
                    message = item.chat_message
                    added = _after(message.content, note)
                    if added and self._model_client_stream:
                        yield ModelClientStreamingChunkEvent(
                            content=added, source=self.name, full_message_id=message.id
                        )
                    message.content += added
                yield item
        finally:
            self._model_context = context


def _after(answer: str, note: str) -> str:
    """Return what is added to an answer so that it says what is missing; nothing to one in JSON, which has a form to
    keep."""
    try:
        json.loads(answer)
    except ValueError:
        return f"\n\n{note}"
    return ""


class _Told(ChatCompletionContext):
    """A model context with something told after the user's last message, which is not kept."""

    def __init__(self, inner: ChatCompletionContext, text: str) -> None:
        super().__init__()
        self._inner = inner
        self._text = text

    async def add_message(self, message: LLMMessage) -> None:
        await self._inner.add_message(message)

    async def get_messages(self) -> list[LLMMessage]:
        messages = [*await self._inner.get_messages()]
        if self._text:
            _insert(messages, self._text)
        return messages

    async def clear(self) -> None:
        await self._inner.clear()


def _insert(messages: list[LLMMessage], text: str) -> None:
    """Tell something after the newest message of a user."""
    places = range(len(messages), 0, -1)
    at = next((place for place in places if isinstance(messages[place - 1], UserMessage)), len(messages))
    messages.insert(at, UserMessage(content=text, source="plan"))
