"""LangGraph with its SQLite saver on the same conversation, in an environment of its own: `langgraph_turns.py FILE
TURNS CHANNEL` makes turns, and prints what the first one took. It imports nothing of this package."""

from __future__ import annotations

import json
import sys
import time
from contextlib import closing
from sqlite3 import connect
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import _messages_delta_reducer  # pyright: ignore[reportPrivateUsage]

_TEXT = "word " * 38


class _Delta(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]


def main(file: str, turns: int, channel: str) -> None:
    """Open the file, and have a graph of one node make so many turns of one thread."""
    config: Any = {"configurable": {"thread_id": "thread"}}
    start, cpu = time.perf_counter(), time.process_time()
    marks: dict[str, float] = {}
    with closing(connect(file, check_same_thread=False)) as connection:
        graph = StateGraph(_Delta if channel == "delta" else MessagesState)
        graph.add_node("ada", lambda state: {"messages": [AIMessage(f"{len(state['messages']):08d} {_TEXT}")]})
        graph.add_edge(START, "ada")
        compiled = graph.compile(checkpointer=SqliteSaver(connection))
        for number in range(turns):
            compiled.invoke({"messages": [HumanMessage(f"{number:08d} {_TEXT}")]}, config)
            if number == 0:
                marks = {"end": time.perf_counter() - start, "cpu": time.process_time() - cpu}
    print(json.dumps(marks))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
