"""A router and a flow: patterns choose who answers, and a flow leads through a booking, one question per run.

Between any two answers the process could end: here each message goes to a `DrSai` of its own. The team is in
`router.yaml`. Keeps `router.db` in this directory.
"""

import asyncio
import uuid
from pathlib import Path

from drsai_backend import DrSai
from drsai_backend.definitions import DefinitionPolicy, load

FILE = str(Path(__file__).with_name("router.yaml"))
MESSAGES = [
    "I want to book a table",
    "tomorrow",
    "When do you open?",  # Another intent: the flow is left.
    "continue",
    "a handful, I think",  # It is no number: the flow asks again.
    "4",
    "terrace",
    "guests: 5",
    "yes",
]


async def main() -> None:
    thread = uuid.uuid4().hex
    for message in MESSAGES:
        async with DrSai(load(FILE, DefinitionPolicy()), "sqlite:///router.db") as drsai:
            result = await drsai.user("ada").run("desk", message, thread_id=thread)
            print(f"> {message}\n{result.text}\n")


if __name__ == "__main__":
    asyncio.run(main())
