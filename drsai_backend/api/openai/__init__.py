"""OpenAI's dialect has a folder or module per API (`chat`, `models`), and what they share: `messages`, the shapes of
what comes in, and `speech`, what a reader sees of a run."""
