"""The tables of docs/clients.md, from what is expected and what is pending: `python -m tests.clients.table`
writes them."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from tests.clients.environments import CLIENTS, Client, version_of
from tests.clients.expected import EXPECTED, PENDING
from tests.recordings import names
from tests.recordings.pending import ANSWERS, HOUSEKEEPING, SEEN, THREADS

FEATURES = {
    "chat": "plain raw models concurrent batch",
    "stream": "stream stream_usage stream_helper frames",
    "group chat": "group group_stream",
    "history": "history history_thread regenerate approval chain conversations",
    "own tools": "tools tools_stream tools_parallel tools_missing_result tools_unused tools_search functions run_tools "
    "handoff",
    "structured": "structured structured_native structured_by_function json_object",
    "parameters": "parameters cut_off not_possible",
    "errors": "unknown_key unknown_model bad_value failing_stream",
    "retries": "timeout failing_model",
    "legacy, embeddings": "completions embeddings complete complete_stream complete_chat",
}
_FEATURE = {name: feature for feature, names in FEATURES.items() for name in names.split()}
_WAYS = {
    "openai-agents": {"default": "Responses, its default", "chat": "chat"},
    "pydantic-ai": {"responses": "Responses", "chat": "chat"},
    "litellm": {"proxy": "its proxy"},
    "ai sdk": {"default": "`openai(…)`, Responses", "chat": "`openai.chat(…)`", "compatible": "`openai-compatible`"},
    "llama-index": {"default": "its default"},
}


def place(client: Client, case: str) -> tuple[str, str]:
    """Row and column of a case."""
    name = case.removeprefix("async_")
    row = f"{re.sub(' [0-9]$', '', client.name)} {version_of(client)}"
    ways = _WAYS.get(client.name, {})
    way, _, rest = name.partition("_")
    if client.name == "llama-index" and way == "default":
        return f"{row}: {ways[way]}", "legacy, embeddings"
    if way in ways and rest:
        return f"{row}: {ways[way]}", _FEATURE[rest]
    if name == "responses" or name == "conversations" or name.startswith("responses_"):
        return f"{row}: Responses", _FEATURE[re.sub("^responses_?", "", name) or "plain"]
    if ways and "chat" in ways:
        return f"{row}: {ways.get('compatible', ways['chat'])}", _FEATURE[name]
    return row, _FEATURE[name]


def table() -> str:
    """Markdown: "yes" if all cases pass, "in part" if some do, "not yet" if none; empty: not tried."""
    cells: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for client in CLIENTS:
        for case in EXPECTED[client.name]:
            row, column = place(client, case)
            cells[row][column].append(case not in PENDING.get(client.name, {}))
    lines = [f"| client | {' | '.join(FEATURES)} |", "| --- " * (len(FEATURES) + 1) + "|"]
    for row, columns in cells.items():
        words = [_word(columns[feature]) if feature in columns else "" for feature in FEATURES]
        lines.append(f"| {row} | {' | '.join(words)} |")
    return "\n".join(lines)


def _word(passed: list[bool]) -> str:
    return "yes" if all(passed) else "in part" if any(passed) else "not yet"


def table_of_open_webui() -> str:
    """The same for what a person does in Open WebUI, from the replays of its recordings."""
    asked = {
        "answered": ANSWERS,
        "the model sees what the window shows": SEEN,
        "housekeeping is apart": HOUSEKEEPING,
        "a chat is a thread": THREADS,
    }
    lines = [f"| scene | {' | '.join(asked)} |", "| --- " * (len(asked) + 1) + "|"]
    for name in names("openwebui"):
        words = ["not yet" if name in pending else "yes" for pending in asked.values()]
        scene = name.removeprefix("openwebui/").replace("named_", "with headers: ").replace("_", " ")
        lines.append(f"| {scene} | {' | '.join(words)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    file = Path(__file__).parents[2] / "docs" / "clients.md"
    pieces = re.split(
        r"(?<=-->\n\n)\|.*?(?=\n\n<!-- end of table -->)", file.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    first, second, third = pieces
    file.write_text(first + table() + second + table_of_open_webui() + third, encoding="utf-8")
