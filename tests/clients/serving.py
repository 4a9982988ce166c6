"""A `drsai serve` with the teams of `teams.py`, the scripted model behind it, and keys. By hand, until Ctrl-C::

python -m tests.clients.serving
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.commands import ROOT, Commands


@dataclass(frozen=True)
class Server:
    base_url: str
    commands: Commands
    folder: Path

    def key(self, user: str) -> str:
        """A new API key of a user of their own."""
        made = self.commands.run("keys", "add", "--user", user, cwd=self.folder)
        assert made.stdout.startswith("sk-"), made.stderr
        return made.stdout.strip()


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """Start both processes; the database is a file in `folder`."""
    with contextlib.ExitStack() as stack:
        command = [sys.executable, "-m", "tests.clients.model"]
        model = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        stack.enter_context(model)
        stack.callback(model.terminate)
        assert model.stdout is not None
        environment = {
            "OPENAI_BASE_URL": model.stdout.readline().strip(),
            "OPENAI_API_KEY": "sk-of-the-server",
            "DRSAI_MODEL": "gpt-4o-mini",
            "DRSAI_EMBEDDINGS_MODEL": "text-embedding-3-small",
            "DRSAI_MODEL_MAX_RETRIES": "0",
            "DRSAI_AUTH": "required",
        }
        commands = stack.enter_context(Commands())
        teams = str(Path(__file__).parent / "teams.py")
        server = commands.start("serve", teams, "--port", "0", cwd=folder, env=environment)
        yield Server(server.base_url(60), commands, folder)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made, serving(Path(made)) as running:
        print(f"BASE_URL={running.base_url} API_KEY={running.key('me')}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            sys.stdin.read()
