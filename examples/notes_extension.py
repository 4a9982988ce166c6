"""A feature of one's own, in the folder `notes`: its verbs, and its tool in an agent. Keeps `extended.db`."""

import asyncio

from notes import Notes

from drsai_backend import DrSai, DrSaiAgent, RunContext, builtin_tools
from drsai_backend.datamodel.owner import Owner

ADA = Owner("default", "ada")


def secretary(context: RunContext) -> DrSaiAgent:
    """Reads notes, with a tool of the extension."""
    return DrSaiAgent("secretary", context.model_client(), tools=[*builtin_tools(["read_notes"])])


async def main() -> None:
    async with DrSai({"secretary": secretary}, "sqlite:///extended.db", extensions=[Notes]) as drsai:
        notes = drsai.extension(Notes)
        await notes.add(ADA, "The tide turns at noon.")
        print((await drsai.user("ada").run("secretary", "Please read my notes")).text)
        print(await notes.ended_runs(ADA), "run has ended")
        counts = await drsai.users.delete(ADA)
        print("deleted:", counts["notes"], "note;", len(await notes.list(ADA)), "left")


if __name__ == "__main__":
    asyncio.run(main())
