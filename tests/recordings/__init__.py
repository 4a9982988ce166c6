"""What chat windows really send, recorded: see README.md.

::

    for exchange in recording("openwebui/regenerate").exchanges:
        exchange.kind, exchange.body, exchange.headers, exchange.answer
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Exchange:
    """One request, and the answer that it got then.

    `kind` is "chat", or what housekeeping it is: "title", "tags", "follow_ups", "queries", "autocomplete", "emoji",
    "image_prompt", "tool_choice", "summary", "merge" (of several models' answers); or "embeddings".
    """

    kind: str
    path: str
    headers: dict[str, str]
    """Names are lower case."""
    body: dict[str, Any]
    answer: dict[str, Any]
    """An assistant message: `content`, `tool_calls`, `reasoning_content`; `left_by_client`: it was cut off there."""

    @property
    def is_housekeeping(self) -> bool:
        return self.kind not in ("chat", "embeddings", "merge")


@dataclass(frozen=True)
class Recording:
    """A scene: what was sent, in its order."""

    name: str
    program: str
    scene: str
    exchanges: list[Exchange]
    environment: dict[str, str] = field(default_factory=dict)
    reconstructed: bool = False
    """Not recorded, but put together from a program's public sources."""


def names(program: str = "*") -> list[str]:
    """Of all recordings, or of one program's: "openwebui", "librechat" or "lobechat"."""
    found = sorted(HERE.glob(f"{program}/*.json"))
    return [f"{path.parent.name}/{path.stem}" for path in found if not path.stem.startswith("tools_")]


def recording(name: str) -> Recording:
    """Read one, for example "openwebui/two_turns"."""
    path = HERE / f"{name}.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    exchanges: list[Exchange] = []
    for item in data["exchanges"]:
        request = item["request"]
        body = dict(request["body"])
        if isinstance(body.get("tools"), dict):  # a list that many requests share
            body["tools"] = json.loads((path.parent / body["tools"]["$file"]).read_text(encoding="utf-8"))
        exchanges.append(Exchange(item["kind"], request["path"], request["headers"], body, item["answer"]))
    return Recording(
        name, data["program"], data["scene"], exchanges, data.get("environment", {}), data.get("reconstructed", False)
    )
