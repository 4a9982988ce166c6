"""Responses and conversations are kept on threads and runs. The parts are `request/` (what may be sent, and what an
`Ask` is made of), `stored/` (where a request is continued, and what is kept of it), `wire` (the response object),
`events` (its stream), `answers` (a response on its connection), `service` (the verbs), `routes` and `socket` (how it is
asked for). `api.openai.conversations` has the conversations.

A response is a run: `resp_` and what follows `run_` in the run's id. One that answers what a run asks is that answer's
row. A conversation is a thread. The grammar is that of Open Responses (https://www.openresponses.org/specification).
"""
