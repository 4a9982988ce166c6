"""codex, as its users run it in a script: `codex exec`. The first argument is where npm has put it."""

from __future__ import annotations

import sys
from typing import Any

from common import API_KEY, BASE_URL, case, main
from repository import FIRST, SECOND, Repository, results

COMMAND = ["node", f"{sys.argv[1]}/@openai/codex/bin/codex.js", "exec"]
CONFIG = f"""
model = "solo"
model_provider = "drsai"

[model_providers.drsai]
name = "drsai"
base_url = "{BASE_URL}"
env_key = "DRSAI_API_KEY"
"""


def ask(repository: Repository, *words: str) -> str:
    home = repository.home / ".codex"
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(CONFIG)
    return repository.run([*COMMAND, *words, "--dangerously-bypass-approvals-and-sandbox"], DRSAI_API_KEY=API_KEY)


@case
def plain() -> Any:
    return ask(Repository(), "Hello, agent.").endswith("Hello, agent.")


@case
def tools_parallel() -> Any:
    repository = Repository()
    return repository.work(ask(repository, FIRST))


@case
def history() -> Any:
    repository = Repository()
    ask(repository, FIRST)
    return {"results": results(ask(repository, "resume", "--last", SECOND))}


if __name__ == "__main__":
    main()
