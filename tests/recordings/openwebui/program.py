"""The real Open WebUI, as a process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

from endpoint import Endpoint


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class OpenWebUI:
    """The real program, with a data folder of its own."""

    def __init__(self, program: str, endpoint: Endpoint, folder: Path, **environment: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.token = ""
        self.log = (folder / "log.txt").open("w")
        given = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "DATA_DIR": str(folder / "data"),
            "OFFLINE_MODE": "true",
            "ANONYMIZED_TELEMETRY": "false",
            "WEBUI_SECRET_KEY": "of-the-recording",
            "OPENAI_API_BASE_URL": endpoint.url,
            "OPENAI_API_KEY": "sk-of-the-recording",
            "ENABLE_OLLAMA_API": "false",
            "RAG_EMBEDDING_ENGINE": "openai",  # the default would load a model from the network
            **environment,
        }
        (folder / "data").mkdir()
        command = [program, "serve", "--host", "127.0.0.1", "--port", str(self.port)]
        self.process = subprocess.Popen(command, env=given, cwd=folder, stdout=self.log, stderr=subprocess.STDOUT)

    def wait(self) -> None:
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"Open WebUI ended with {self.process.returncode}: see {self.log.name}")
            try:
                urllib.request.urlopen(f"{self.url}/health", timeout=5).read()
                return
            except OSError:
                time.sleep(0.5)
        raise TimeoutError("Open WebUI did not start")

    def post(self, path: str, body: Any) -> Any:
        headers = {"content-type": "application/json", "authorization": f"Bearer {self.token}"}
        request = urllib.request.Request(f"{self.url}{path}", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")

    def get(self, path: str) -> Any:
        request = urllib.request.Request(f"{self.url}{path}", headers={"authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
