"""Text calls are calls of tools for models that cannot call functions: how they are asked, and what their answers mean.

The protocol is that of ReAct (Yao et al., "ReAct: Synergizing Reasoning and Acting in Language Models", 2022): thought,
action, action input, observation, in turn, until a final answer.
"""
