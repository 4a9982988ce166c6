"""`/api/v1/agent` is the engine in the words of an interface for single tasks, which are runs: a mode, steps, tools. No
state of its own: a conversation is a thread, a task a run."""
