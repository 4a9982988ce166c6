"""claude-agent-sdk, which brings a Claude Code of its own."""

from __future__ import annotations

from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage, query
from common import API_KEY, ROOT_URL, case, main
from repository import FIRST, SECOND, Repository, results, threads


def options(repository: Repository) -> ClaudeAgentOptions:
    server = {"ANTHROPIC_BASE_URL": ROOT_URL, "ANTHROPIC_AUTH_TOKEN": API_KEY}
    around = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "IS_SANDBOX": "1"}
    return ClaudeAgentOptions(
        model="solo",
        cwd=repository.folder,
        permission_mode="bypassPermissions",
        env={**repository.environment, **server, **around},
    )


async def answer_of(messages: Any) -> str:
    answers = [message.result async for message in messages if isinstance(message, ResultMessage)]
    return answers[-1] or ""


@case
async def plain() -> Any:
    repository = Repository()
    answer = await answer_of(query(prompt="Hello, agent.", options=options(repository)))
    return answer.endswith("Hello, agent.")


@case
async def tools_parallel() -> Any:
    repository = Repository()
    return repository.work(await answer_of(query(prompt=FIRST, options=options(repository))))


@case
async def history() -> Any:
    repository, before = Repository(), threads()
    async with ClaudeSDKClient(options(repository)) as client:
        await client.query(FIRST)
        await answer_of(client.receive_response())
        await client.query(SECOND)
        seen = results(await answer_of(client.receive_response()))
    new = {name: runs for name, runs in threads().items() if name not in before}
    return {"results": seen, "runs of its threads": [*new.values()]}


if __name__ == "__main__":
    main()
