"""Files of users, and a tool that keeps one. Keeps `files.db` here."""

import asyncio

from drsai_backend import DrSai, DrSaiAgent, FileOutput, RunContext, tool
from drsai_backend.datamodel.owner import Owner


@tool
def write_report(city: str) -> FileOutput:
    """Write a report on a city.

    Args:
        city: its name
    """
    return FileOutput("report.csv", f"city,weather\n{city},sunny\n".encode(), media_type="text/csv")


def reporter(context: RunContext) -> DrSaiAgent:
    return DrSaiAgent("reporter", context.model_client(), tools=[write_report], reflect_on_tool_use=True)


async def main() -> None:
    ada = Owner("default", "ada")
    async with DrSai(teams={"reporter": reporter}, database_url="sqlite:///files.db") as drsai:
        note = await drsai.files.create(ada, "note.txt", b"Buy bread.", media_type="text/plain")
        print(f"{note.filename}: {note.bytes} bytes, {(await drsai.files.read(ada, note.file_id)).decode()}")

        await drsai.user("ada").run("reporter", "Write a report on Rome.")
        # Newest first. What a tool keeps belongs to the owner of the thread.
        for info in (await drsai.files.list(ada)).items:
            print(f"{info.filename} ({info.media_type}, {info.purpose})")
        [report] = (await drsai.files.list(ada, purpose="assistants_output", limit=1)).items[:1]
        print((await drsai.files.read(ada, report.file_id)).decode().splitlines()[0])

        for info in (await drsai.files.list(ada)).items:
            await drsai.files.delete(ada, info.file_id)
        print(f"files left: {len((await drsai.files.list(ada)).items)}")


if __name__ == "__main__":
    asyncio.run(main())
