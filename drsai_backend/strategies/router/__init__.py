"""A router decides by patterns and a model who handles each input: an agent, a tool, a flow, or a plain answer."""

from drsai_backend.strategies.router.flows.agent import FlowAgent
from drsai_backend.strategies.router.flows.schema import Ask, CallTool, Confirm, End, Flow, Goto, Say
from drsai_backend.strategies.router.options import Pattern, RouterOptions, Skill, Target
from drsai_backend.strategies.router.strategy import Router
from drsai_backend.strategies.router.team import RouterTeam

__all__ = [
    "Ask",
    "CallTool",
    "Confirm",
    "End",
    "Flow",
    "FlowAgent",
    "Goto",
    "Pattern",
    "Router",
    "RouterOptions",
    "RouterTeam",
    "Say",
    "Skill",
    "Target",
]
