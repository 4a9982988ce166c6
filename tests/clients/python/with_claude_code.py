"""Claude Code, as its users run it in a script: `claude -p`. The first argument is where npm has put it."""

from __future__ import annotations

import sys
from typing import Any

from common import API_KEY, ROOT_URL, case, main
from repository import FIRST, SECOND, Repository, results, threads

COMMAND = ["node", f"{sys.argv[1]}/@anthropic-ai/claude-code/cli-wrapper.cjs", "-p", "--dangerously-skip-permissions"]
SETTINGS = {"ANTHROPIC_BASE_URL": ROOT_URL, "ANTHROPIC_AUTH_TOKEN": API_KEY, "ANTHROPIC_MODEL": "solo"}
# Nothing but requests for messages; and root may skip permissions, in a container.
AROUND = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "IS_SANDBOX": "1"}


def ask(repository: Repository, text: str, *options: str) -> str:
    return repository.run([*COMMAND, *options, text], **SETTINGS, **AROUND)


@case
def plain() -> Any:
    return ask(Repository(), "Hello, agent.").endswith("Hello, agent.")


@case
def tools_parallel() -> Any:
    repository = Repository()
    return repository.work(ask(repository, FIRST))


@case
def tools_search() -> Any:
    return ask(Repository(), "Look WebFetch up.")


@case
def history() -> Any:
    repository, before = Repository(), threads()
    ask(repository, FIRST)
    seen = results(ask(repository, SECOND, "--continue"))
    new = {name: runs for name, runs in threads().items() if name not in before}
    return {"results": seen, "runs of its threads": [*new.values()]}


if __name__ == "__main__":
    main()
