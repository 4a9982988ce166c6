"""Memory keeps what people have said of themselves, across threads, and recalls it for agents: `/v1/memories`.

`base` says what a memory is; `rows` stores; `checks` refuses secrets and what no message holds; `extraction` learns
after a run; `recall` shows; `conversations` reads threads; `extension` has the verbs; `autogen` is a `Memory` of
AutoGen's.
"""
