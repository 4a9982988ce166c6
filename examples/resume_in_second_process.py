"""One conversation, two processes: the second knows what was said to the first, by nothing but the thread's id.

The program starts itself again. Keeps `resume.db` in this directory.
"""

import asyncio
import os
import subprocess
import sys

from drsai_backend import DrSai

THREAD = "a-thread-of-mine"


async def say(text: str) -> None:
    async with DrSai(database_url="sqlite:///resume.db") as drsai:  # the built-in teams: assistant and writers
        result = await drsai.user("ada").run("assistant", text, thread_id=THREAD)
        print(f"[process {os.getpid()}] {text}")
        print(f"[process {os.getpid()}]   {result.text}", flush=True)


def main() -> None:
    if len(sys.argv) > 1:  # the second process
        asyncio.run(say("What is my name?"))
        return
    asyncio.run(say("My name is Ada."))
    subprocess.run([sys.executable, __file__, "second"], check=True)


if __name__ == "__main__":
    main()
