"""Teams of one's own, to be served: `drsai serve examples/teams.py`. Each name in `teams` becomes a model id."""

from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import DiGraphBuilder

from drsai_backend import AssistantAgent, GraphFlow, RoundRobinGroupChat, RunContext


def temperature(city: str) -> str:
    """The temperature in a city (a made-up one)."""
    return f"It is {len(city) + 10} °C in {city}."


def weather(context: RunContext) -> AssistantAgent:
    """Knows the temperature of any city."""
    return AssistantAgent("weather", context.model_client(), tools=[temperature], model_client_stream=True)


def translators(context: RunContext) -> GraphFlow:
    """Two translators at once, and an editor who reads both."""
    french, german, editor = (
        AssistantAgent(name, context.model_client(), system_message=message, model_client_stream=True)
        for name, message in [
            ("french", "Translate into French."),
            ("german", "Translate into German."),
            ("editor", "Say which of the two translations is closer to the original."),
        ]
    )
    graph = DiGraphBuilder().add_node(french).add_node(german).add_node(editor)
    graph.add_edge(french, editor).add_edge(german, editor)
    return GraphFlow([french, german, editor], graph.build(), termination_condition=MaxMessageTermination(4))


def interview(context: RunContext) -> RoundRobinGroupChat:
    """Asks you back before it advises. Your next message is the answer, whenever it comes."""
    guide = AssistantAgent("guide", context.model_client(), system_message="Ask one question back.")
    advisor = AssistantAgent(
        "advisor", context.model_client(), system_message="Give advice in three sentences.", model_client_stream=True
    )
    return RoundRobinGroupChat(
        [guide, UserProxyAgent("you"), advisor],
        termination_condition=MaxMessageTermination(4),  # the user's message and one of each
    )


teams = {"weather": weather, "translators": translators, "interview": interview}
