"""The runtime of a team is AutoGen's `AgentRuntime`, turn by turn."""
