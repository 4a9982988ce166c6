"""The main job on an installed package, with nothing but the standard library: `python .ci/smoke.py path/to/drsai`.

Upgrades a database, serves, talks, kills the server with SIGKILL, serves again and asks what it remembers. Works in the
current directory, which should be empty.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import Any

DATABASE = "sqlite:///smoke.db"
START_SECONDS = 60


def main(drsai: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "DRSAI_"))}
    environment |= {"DRSAI_DATABASE_URL": DATABASE, "DRSAI_DEMO_DELAY": "0"}

    def run(*arguments: str) -> str:
        done = subprocess.run([drsai, *arguments], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"drsai {arguments}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def serve() -> tuple[subprocess.Popen[bytes], str]:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        process = subprocess.Popen([drsai, "serve", "--port", str(port)], env=environment)
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            assert process.poll() is None, "the server ended at once"
            try:
                with urllib.request.urlopen(f"{url}/readyz", timeout=5):
                    return process, url
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        process.kill()
        raise AssertionError("the server was not ready in time")

    def say(url: str, text: str) -> Any:
        body = {"model": "assistant", "thread_id": "smoke", "messages": [{"role": "user", "content": text}]}
        request = urllib.request.Request(
            f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)["choices"][0]["message"]["content"]

    print(run("--version").strip())
    run("db", "upgrade")
    print("schema:", run("db", "show").strip())
    process, url = serve()
    try:
        print(say(url, "My name is Ada."))
    finally:
        process.kill()
        process.wait()
    process, url = serve()
    try:
        answer = say(url, "What is my name?")
        print(answer)
        assert "Ada" in answer
        with urllib.request.urlopen(f"{url}/v1/models", timeout=5) as response:
            assert [model["id"] for model in json.load(response)["data"]] == ["assistant", "writers"]
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    assert "smoke" in run("threads", "list")
    run("db", "downgrade", "base", "--yes")


if __name__ == "__main__":
    main(*sys.argv[1:])
