"""OpenAI's dialect: `chat` (the endpoint, and what can be asked), `inputs` and `messages` (what came in), `speech`
(what a reader sees of a run), `wire` (its JSON)."""
