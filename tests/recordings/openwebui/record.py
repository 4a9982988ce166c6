"""Record what the real Open WebUI sends to an OpenAI-compatible server: see README.md beside this file.

Needs `open-webui` and `playwright` from PyPI, and a Chromium; each may live in an environment of its own::

    python record.py --open-webui …/bin/open-webui --chromium /usr/bin/chromium --out .

It starts the real program, offline, with an empty data folder, in front of a small scripted model endpoint of its own;
a browser signs up and chats through the real pages. Each scene becomes a file: the requests that reached the endpoint,
in their order, with the answers that they got. What differs from one recording to the next (ids, times, keys, ports)
is replaced by fixed text.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from pathlib import Path
from typing import Any

from endpoint import Endpoint, text_of
from playwright.sync_api import sync_playwright
from program import OpenWebUI
from scenes import STARTS, Scene, Window

EMAIL, PASSWORD = "ada@example.org", "correct horse battery staple"


_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_FIXED = [
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?"), "2026-01-01T12:00:00+00:00"),
    (re.compile(r"\b20\d\d-\d\d-\d\d\b(?!T)"), "2026-01-01"),
    (re.compile(r"\b1[789]\d{8}(\d{3})?\b"), "1767268800"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:8000"),
    (re.compile(r"sk-of-the-recording"), "sk-neutral"),
    (re.compile(r"temporary:[\w-]+"), "temporary:NeutralSocketId00000"),
    (re.compile(r"\b(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, [A-Z][a-z]+ \d+, \d{4}"), "Thursday, January 1, 2026"),
]


_KINDS = {  # a word of the prompt, and what it asks for
    '"title"': "title",
    '"follow_ups"': "follow_ups",
    '"tags"': "tags",
    '"queries"': "queries",
    "autocompletion": "autocomplete",
    '"prompt"': "image_prompt",
    "compacted out": "summary",
    "emoji": "emoji",
    "set of responses from various models": "merge",
}


def kind_of(path: str, body: dict[str, Any]) -> str:
    """What a request is, as Open WebUI's sources name its tasks. Each recording was looked through once."""
    if path.endswith("/embeddings"):
        return "embeddings"
    text = text_of(body["messages"][-1])
    if body["messages"][0]["role"] == "system" and "Available Tools" in text_of(body["messages"][0]):
        return "tool_choice"
    if body.get("stream"):
        return "chat"
    return next((kind for word, kind in _KINDS.items() if word in text), "chat")


def neutral(value: Any, seen: dict[str, str]) -> Any:
    """The same with ids numbered in the order of their appearance, and fixed times, ports and keys."""
    text = json.dumps(value, ensure_ascii=False)
    text = _UUID.sub(lambda found: seen.setdefault(found[0], f"00000000-0000-4000-8000-{len(seen):012d}"), text)
    for pattern, fixed in _FIXED:
        text = pattern.sub(fixed, text)
    return json.loads(text)


def written(
    scene: Scene, version: str, environment: dict[str, str], exchanges: list[Any], out: Path, name: str
) -> None:
    head = {"program": f"Open WebUI {version}", "scene": " ".join((scene.__doc__ or "").split())}
    if environment:
        head["environment"] = environment  # type: ignore[assignment]
    plain = neutral(exchanges, {})
    for number, exchange in enumerate(plain):
        exchange = plain[number] = {
            "kind": kind_of(exchange["request"]["path"], exchange["request"]["body"]),
            **exchange,
        }
        headers = exchange["request"]["headers"]
        exchange["request"]["headers"] = {n.lower(): v for n, v in headers.items() if n.lower() != "content-length"}
        body = exchange["request"]["body"]
        if len(body.get("tools", [])) > 5:  # the same list each time, of many kilobytes
            file = f"tools_{len(body['tools'])}.json"
            text = json.dumps(body["tools"], indent=1, ensure_ascii=False) + "\n"
            known = out / file
            if known.exists() and known.read_text(encoding="utf-8") != text:
                file = f"tools_of_{name}.json"
            (out / file).write_text(text, encoding="utf-8")
            body["tools"] = {"$file": file}
    whole = json.dumps({**head, "exchanges": plain}, indent=1, ensure_ascii=False) + "\n"
    (out / f"{name}.json").write_text(whole, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--open-webui", required=True, help="its program")
    parser.add_argument("--chromium", required=True, help="its program")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("scenes", nargs="*", help="some scenes only, by their names")
    given = parser.parse_args()
    for prefix, environment, scenes in STARTS:
        chosen = [scene for scene in scenes if not given.scenes or prefix + scene.__name__ in given.scenes]
        if not chosen:
            continue
        folder = Path(tempfile.mkdtemp(prefix="openwebui-"))
        endpoint = Endpoint()
        program = OpenWebUI(given.open_webui, endpoint, folder, **environment)
        try:
            program.wait()
            user = {"name": "Ada", "email": EMAIL, "password": PASSWORD}
            program.token = program.post("/api/v1/auths/signup", user)["token"]
            version = program.get("/api/version")["version"]
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=given.chromium, args=["--no-sandbox"])
                for scene in chosen:
                    context = browser.new_context(viewport={"width": 1400, "height": 900})
                    context.add_init_script(f"localStorage.setItem('token', '{program.token}')")
                    window = Window(context.new_page(), program, endpoint)
                    name = prefix + scene.__name__
                    endpoint.take()
                    try:
                        scene(window)
                        endpoint.settle()
                        exchanges = endpoint.take()
                        written(scene, version, environment, exchanges, given.out, name)
                        print(f"{name}: {len(exchanges)} requests", flush=True)
                    except Exception as error:  # noqa: BLE001  # the other scenes are recorded all the same
                        window.page.screenshot(path=str(folder / f"{name}.png"))
                        print(f"{name}: {str(error)[:400]}; see {folder}", flush=True)
                    context.close()
                browser.close()
        finally:
            program.stop()


if __name__ == "__main__":
    main()
