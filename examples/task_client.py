"""Tasks over HTTP and WebSocket (`/api/v1/agent`): steps as they come, a stream that breaks off and is continued.

Starts a server of its own on a free port, as `drsai serve` does. Keeps `tasks.db` in this directory.
"""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn
from websockets.asyncio.client import connect

from drsai_backend import DrSai


@asynccontextmanager
async def serving() -> AsyncGenerator[str]:
    """Serve in this process; gives the address."""
    app = DrSai(database_url="sqlite:///tasks.db").app()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="websockets-sansio"))
        task = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}/api/v1/agent"
        finally:
            server.should_exit = True
            await task


async def whole(http: httpx.AsyncClient) -> None:
    """A task, and how it went."""
    body = {"task": "What is 2 + 3?", "mode": "tools", "max_steps": 5, "conversation_id": "sums"}
    task = (await http.post("/execute", json=body)).raise_for_status().json()
    for step in task["steps"]:
        print(f"  step {step['step']}: {step['action'] or 'answer'} -> {step['observation'] or step['final_answer']}")
    print(f"{task['status']}: {task['step_count']} steps, {task['tool_call_count']} call of a tool")


async def streamed(http: httpx.AsyncClient) -> None:
    """A task as a stream that is left after two events, and continued where it was left."""
    task_id = last = ""
    async with http.stream("POST", "/execute-stream", json={"task": "What is 6 * 7?", "mode": "tools"}) as answer:
        async for event_id, event in events(answer):
            task_id, last = event.get("task_id", task_id), event_id or last
            print(f"  {event['type']}")
            if event["type"] == "action":
                break
    print("(the connection breaks)")
    async with http.stream("GET", f"/tasks/{task_id}/stream", headers={"Last-Event-ID": last}) as answer:
        async for _, event in events(answer):
            print(f"  {event['type']} {event.get('content') or ''}")


async def events(answer: httpx.Response) -> AsyncGenerator[tuple[str, dict[str, Any]]]:
    """The ids and the data of server-sent events."""
    event_id = ""
    async for line in answer.aiter_lines():
        if line.startswith("id: "):
            event_id = line.removeprefix("id: ")
        elif line.startswith("data: {"):
            yield event_id, json.loads(line.removeprefix("data: "))


async def over_a_websocket(address: str) -> None:
    """The same conversation over a WebSocket."""
    async with connect(f"ws://{address}/ws") as websocket:
        body = {"type": "execute", "task": "Say hello.", "mode": "simple", "conversation_id": "sums"}
        await websocket.send(json.dumps(body))
        async for message in websocket:
            event = json.loads(message)
            if event["type"] == "final":
                print(f"  {event['status']}: {event['content']}")
                break


async def main() -> None:
    async with serving() as address, httpx.AsyncClient(base_url=f"http://{address}", timeout=60) as http:
        await whole(http)
        await streamed(http)
        await over_a_websocket(address)
        memory = (await http.get("/memory/sums")).raise_for_status().json()["short_term"]
        print(f"the conversation has {len(memory)} messages; the tasks, newest first:")
        for task in (await http.get("/tasks", params={"limit": 3})).raise_for_status().json()["tasks"]:
            print(f"  {task['mode']}: {task['task']} {task['status']}")


if __name__ == "__main__":
    asyncio.run(main())
