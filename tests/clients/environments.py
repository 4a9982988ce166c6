"""An environment per client: made once, kept in a cache folder, made anew when its pins change.

The folder is `$DRSAI_CLIENTS_CACHE`, else `drsai-clients` in the user's cache folder. What is installed comes from the
package index and npm registry that pip and npm are configured for.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Client:
    """`name` in reports and marks; its script; its pins: a file of `requirements`, or None for the package.json of the
    folder `npm`, and there the name of its `package`."""

    name: str
    script: str
    requirements: str | None
    npm: str = "node"
    package: str = ""

    @property
    def needs_node(self) -> bool:
        return self.requirements is None


CLIENTS = [
    Client("openai 3", "python/with_openai.py", "openai_3.txt"),
    Client("openai 2", "python/with_openai.py", "openai_2.txt"),
    Client("openai 1", "python/with_openai.py", "openai_1.txt"),
    Client("langchain", "python/with_langchain.py", "langchain.txt"),
    Client("openai-agents", "python/with_openai_agents.py", "openai_agents.txt"),
    Client("pydantic-ai", "python/with_pydantic_ai.py", "pydantic_ai.txt"),
    Client("litellm", "python/with_litellm.py", "litellm.txt"),
    Client("anthropic", "python/with_anthropic.py", "anthropic.txt"),
    Client("llama-index", "python/with_llama_index.py", "llama_index.txt"),
    Client("openai node", "node/with_openai.mjs", None, package="openai"),
    Client("ai sdk", "node/with_ai_sdk.mjs", None, package="ai"),
    Client("claude code", "python/with_claude_code.py", None, "agents", "@anthropic-ai/claude-code"),
    Client("claude-agent-sdk", "python/with_claude_agent_sdk.py", "claude_agent_sdk.txt"),
    Client("codex", "python/with_codex.py", None, "agents", "@openai/codex"),
]

DOCUMENTED = {
    "openai (node)": "openai node",
    "LangChain": "langchain",
    "OpenAI Agents SDK": "openai-agents",
    "pydantic-ai": "pydantic-ai",
    "LiteLLM": "litellm",
    "LlamaIndex": "llama-index",
    "Vercel AI SDK": "ai sdk",
    "claude-agent-sdk": "claude-agent-sdk",
}
"""Sections of docs/clients.md whose programs need the package of a client, with that client."""


def version_of(client: Client) -> str:
    """The pinned release, for example "3.54.0"."""
    if client.requirements is not None:
        return (HERE / "requirements" / client.requirements).read_text(encoding="utf-8").split("==")[1].split()[0]
    pins = json.loads((HERE / client.npm / "package.json").read_text(encoding="utf-8"))["dependencies"]
    return str(pins[client.package])


def node() -> str | None:
    """Node's program, if node and npm are there."""
    return shutil.which("node") if shutil.which("npm") else None


def command_of(client: Client) -> list[str]:
    """What runs its script. Makes the environment if need be, which takes up to some minutes.

    Raises:
        RuntimeError: it could not be made; the text is the installer's.
    """
    if not client.needs_node:
        return [str(_python(client.requirements or "")), str(HERE / client.script)]
    pins = [HERE / client.npm / "package.json", HERE / client.npm / "package-lock.json"]
    folder = _made(client.npm, pins, _install_agents if client.npm == "agents" else _install_node)
    if client.npm == "agents":
        return [sys.executable, str(HERE / client.script), str(folder / "node_modules")]
    for file in (HERE / "node").glob("*.mjs"):  # node looks for packages beside the script
        shutil.copy(file, folder / file.name)
    return [node() or "node", str(folder / Path(client.script).name)]


def command_for(client: Client, program: str, folder: Path) -> list[str]:
    """What runs another program with its packages. It is written into `folder`, or where node finds those."""
    command, script = command_of(client)[0], folder / "block.py"
    if client.needs_node:
        script = Path(command_of(client)[1]).with_name("block.mjs")
    script.write_text(program, encoding="utf-8")
    return [command, str(script)]


def _python(requirements: str) -> Path:
    file = HERE / "requirements" / requirements
    return _made(file.stem, [file], _install_python) / "bin" / "python"


def _made(name: str, pins: list[Path], install: object) -> Path:
    cache = os.environ.get("DRSAI_CLIENTS_CACHE") or Path.home() / ".cache" / "drsai-clients"
    digest = hashlib.sha256(b"\0".join(file.read_bytes() for file in pins)).hexdigest()[:12]
    folder = Path(cache) / f"{name}-{sys.version_info.major}.{sys.version_info.minor}-{digest}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            install(folder, pins)  # type: ignore[operator]
            (folder / "complete").touch()
    return folder


def _install_python(folder: Path, pins: list[Path]) -> None:
    _run([sys.executable, "-m", "venv", str(folder)])
    _run([str(folder / "bin" / "pip"), "install", "--quiet", "--requirement", str(pins[0])])


def _install_node(folder: Path, pins: list[Path]) -> None:
    folder.mkdir()
    for file in pins:
        shutil.copy(file, folder / file.name)
    _run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], folder)


def _install_agents(folder: Path, pins: list[Path]) -> None:
    """Their programs are optional dependencies, one for each platform: npm is content without, and they are not."""
    _install_node(folder, pins)
    for program in ("@anthropic-ai/claude-code/cli-wrapper.cjs", "@openai/codex/bin/codex.js"):
        _run([node() or "node", str(folder / "node_modules" / program), "--version"])


def _run(command: list[str], folder: Path | None = None) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
