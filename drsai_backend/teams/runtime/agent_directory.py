"""The agent directory knows who is on a runtime and gets what: the part of AutoGen's `AgentRuntime` that delivers
nothing."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from autogen_core import (
    Agent,
    AgentId,
    AgentInstantiationContext,
    AgentMetadata,
    AgentRuntime,
    AgentType,
    Subscription,
    TopicId,
)

T = TypeVar("T", bound=Agent)


class AgentDirectory(AgentRuntime):
    """Agents by their ids, factories that make them, and subscriptions."""

    def __init__(self) -> None:
        self._factories: dict[str, Callable[[], Agent | Awaitable[Agent]]] = {}
        self._agents: dict[AgentId, Agent] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._routes: dict[tuple[str, str], list[AgentId]] = {}
        self._recipients: dict[tuple[str, str], list[AgentId]] = {}
        """What routes and subscriptions come to, for each topic that was asked for since a subscription changed."""

    # --- registration -------------------------------------------------------------------------------------------

    async def register_factory(
        self,
        type: str | AgentType,
        agent_factory: Callable[[], T | Awaitable[T]],
        *,
        expected_class: type[T] | None = None,
    ) -> AgentType:
        agent_type = AgentType(type) if isinstance(type, str) else type
        if agent_type.type in self._factories:
            raise ValueError(f"Agent with type {agent_type.type} already exists.")
        self._factories[agent_type.type] = agent_factory
        return agent_type

    async def register_agent_instance(self, agent_instance: Agent, agent_id: AgentId) -> AgentId:
        await agent_instance.bind_id_and_runtime(id=agent_id, runtime=self)
        self.place(agent_id, agent_instance)
        return agent_id

    def place(self, agent_id: AgentId, agent: Agent) -> None:
        """Make a constructed agent reachable under `agent_id`."""
        self._agents[agent_id] = agent

    def seat(self, agents: Mapping[AgentId, Agent], routes: Mapping[tuple[str, str], list[AgentId]]) -> None:
        """Make constructed agents reachable, and deliver what is published to a topic (its type and source) to those
        that `routes` says, in order."""
        self._agents |= agents
        self._routes |= routes
        self._recipients |= routes

    async def instance(self, agent_id: AgentId) -> Agent:
        """The agent of that id, made by its factory when it is first asked for."""
        agent = self._agents.get(agent_id)
        if agent is None:
            factory = self._factories.get(agent_id.type)
            if factory is None:
                raise LookupError(f"Agent with name {agent_id.type} not found.")
            with AgentInstantiationContext.populate_context((self, agent_id)):
                made = factory()
                agent = await made if inspect.isawaitable(made) else made
            self.place(agent_id, agent)
        return agent

    async def add_subscription(self, subscription: Subscription) -> None:
        if subscription.id in self._subscriptions:
            raise ValueError("Subscription already exists")
        self._subscriptions[subscription.id] = subscription
        self._recipients.clear()

    async def remove_subscription(self, id: str) -> None:
        del self._subscriptions[id]
        self._recipients.clear()

    def recipients(self, topic_id: TopicId) -> list[AgentId]:
        # Not by the TopicId itself: its subclass DefaultTopicId never equals it.
        key = (topic_id.type, topic_id.source)
        found = self._recipients.get(key)
        if found is None:
            matching = [each for each in self._subscriptions.values() if each.is_match(topic_id)]
            subscribed = [each.map_to_agent(topic_id) for each in matching]
            found = self._recipients[key] = [*self._routes.get(key, ()), *subscribed]
        return found

    # --- the rest of the protocol -------------------------------------------------------------------------------

    async def try_get_underlying_agent_instance(self, id: AgentId, type: type[T] = Agent) -> T:  # type: ignore[assignment]
        agent = await self.instance(id)
        if not isinstance(agent, type):
            raise TypeError(f"Agent with name {id.type} is not of type {type.__name__}.")
        return agent

    async def get(
        self, id_or_type: AgentId | AgentType | str, /, key: str = "default", *, lazy: bool = True
    ) -> AgentId:
        if isinstance(id_or_type, AgentId):
            agent_id = id_or_type
        else:
            agent_id = AgentId(id_or_type if isinstance(id_or_type, str) else id_or_type.type, key)
        if not lazy:
            await self.instance(agent_id)
        return agent_id

    async def agent_metadata(self, agent: AgentId) -> AgentMetadata:
        return (await self.instance(agent)).metadata

    async def agent_save_state(self, agent: AgentId) -> Mapping[str, object]:
        return await (await self.instance(agent)).save_state()

    async def agent_load_state(self, agent: AgentId, state: Mapping[str, object]) -> None:
        await (await self.instance(agent)).load_state(state)

    async def save_state(self) -> Mapping[str, object]:
        return {str(agent_id): dict(await agent.save_state()) for agent_id, agent in self._agents.items()}

    async def load_state(self, state: Mapping[str, Mapping[str, object]]) -> None:
        for name, agent_state in state.items():
            await (await self.instance(AgentId.from_str(name))).load_state(agent_state)

    def add_message_serializer(self, serializer: object) -> None:
        """Do nothing, as nothing is serialised on the way: messages stay objects of this process."""
