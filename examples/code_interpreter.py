"""Code that a model writes, run in a sandbox. Needs the extra `code` (docs/deployment.md); keeps `code.db` here."""

import asyncio

from drsai_backend import DrSai, DrSaiAgent, RunContext
from drsai_backend.tools import call_tool
from drsai_backend.tools.code import CodeLimits, code_interpreter

python = code_interpreter("monty", limits=CodeLimits(seconds=1, memory=64 << 20))


def coder(context: RunContext) -> DrSaiAgent:
    return DrSaiAgent("coder", context.model_client(), tools=[python], reflect_on_tool_use=True)


async def main() -> None:
    async with DrSai(teams={"coder": coder}, database_url="sqlite:///code.db") as drsai:
        task = "Use the code interpreter: 'sum(n * n for n in range(10))'"
        async for message in drsai.run_stream("coder", task):
            print("  ", type(message).__name__, getattr(message, "content", ""))

    # What a model may try, and what it is told.
    for code in ("open('/etc/passwd').read()", "while True: pass", "'x' * 10 ** 12"):
        result = await call_tool(python, {"code": code})
        print(f"{code}\n   {result.to_text().splitlines()[-1]}")


if __name__ == "__main__":
    asyncio.run(main())
