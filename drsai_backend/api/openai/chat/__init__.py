"""Chat Completions have three parts: `endpoint` (the route), `inputs` (from a request to an `Ask`), `wire` (the
answer's JSON)."""
