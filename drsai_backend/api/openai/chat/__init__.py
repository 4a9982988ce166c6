"""Chat Completions: `endpoint` (the route), `inputs` (from a request to a `RunRequest`), `wire` (the answer's JSON)."""
