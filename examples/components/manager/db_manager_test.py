"""The database manager, step by step: create, read, change and delete a `UserInput`, then several.

A script (pytest does not collect it). Keeps its database in a temporary directory.
"""

import asyncio
import tempfile
from pathlib import Path

from drsai_backend import DatabaseManager, UserInput


async def one(db: DatabaseManager) -> None:
    row = UserInput(user_id="ada", thread_id="t1", user_last_message="Hello", temperature=0.2, api_key="sk-secret")
    await db.upsert(row)
    print(f"created: id {row.id}, {row.user_last_message!r}, key shown: {'sk-secret' in repr(row)}")

    (found,) = await db.get(UserInput, filters={"user_id": "ada", "thread_id": "t1"})
    print(f"read: {found.user_last_message!r}, temperature {found.temperature}, key {found.api_key}")

    found.temperature = 0.9  # only what changed is written; what others changed meanwhile stays
    await db.upsert(found)
    (changed,) = await db.get(UserInput, filters={"id": row.id})
    print(f"changed: temperature {changed.temperature}, still {changed.user_last_message!r}")

    print(f"deleted: {await db.delete(UserInput, filters={'id': row.id})}")
    print(f"left: {len(await db.get(UserInput))}")


async def several(db: DatabaseManager) -> None:
    for number in range(5):
        await db.upsert(UserInput(user_id="ada", thread_id=f"t{number}", user_last_message=f"message {number}"))

    newest = await db.get(UserInput, filters={"user_id": "ada"}, order="-id", limit=2)
    print(f"the newest two: {[row.thread_id for row in newest]}")
    some = await db.get(UserInput, filters={"thread_id": ["t0", "t3"]}, order="thread_id")
    print(f"by a list: {[row.user_last_message for row in some]}")
    later = await db.get(UserInput, filters={"thread_id": {"ge": "t2"}}, order="thread_id")
    print(f"by an operator: {[row.thread_id for row in later]}")

    print(f"deleted: {await db.delete(UserInput, filters={'user_id': 'ada'})}")


def without_event_loop(db: DatabaseManager) -> None:
    db.sync.upsert(UserInput(user_id="bob", thread_id="t1", user_last_message="from a plain function"))
    print(f"synchronous: {db.sync.get(UserInput, filters={'user_id': 'bob'})[0].user_last_message!r}")


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with DatabaseManager(f"sqlite:///{Path(folder) / 'manager.db'}") as db:
            await one(db)
            await several(db)
            await asyncio.to_thread(without_event_loop, db)


if __name__ == "__main__":
    asyncio.run(main())
