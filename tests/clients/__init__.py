"""Real clients, each at a pinned version in an environment of its own, against a real `drsai serve`.

`make clients` runs them; they are no part of the default suite. A script in `python/` or `node/` does with its client
what users do with it, at its defaults, and prints what it saw: one JSON object a case. `contracts.py` compares that
with `expected.py`, which also lists the cases that wait for a part of the server that is not there yet. By hand::

    python -m tests.clients.serving  # prints BASE_URL and API_KEY
    BASE_URL=… API_KEY=… CASES="plain tools" …/bin/python tests/clients/python/with_openai.py
"""
