"""JSONPaths are searched for inside a process of their own (`tools.apart`), as path and answer may both take for
ever."""

from __future__ import annotations

import json

import jsonpath


def main(data: bytes) -> bytes:
    """`data` is the path, a zero byte and the answer. What is found is JSON: the value where it is one, else a list."""
    path, _, answer = data.partition(b"\0")
    found = jsonpath.findall(path.decode(), json.loads(answer.decode("utf-8", "replace")))
    shown = found[0] if len(found) == 1 else found
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
