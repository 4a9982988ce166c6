"""OpenAI's dialect: `chat` (the endpoint), `inputs` and `messages` (what came in), `speech` (what a reader sees of a
run), `wire` (its JSON), `stream` (how it is sent), `models` (what can be asked)."""
