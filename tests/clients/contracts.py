"""Each real client does with this server what its users expect of it. `make clients` runs this module.

It is not collected by default: its name is none of a test module's, and the first run installs all clients.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.clients.environments import CLIENTS, DOCUMENTED, Client, command_for, command_of, node
from tests.clients.expected import EXPECTED, PENDING
from tests.clients.serving import serving
from tests.examples.test_blocks import BLOCKS

ANY = "(was not reported)"


@dataclass
class Report:
    """What a script printed, by case."""

    saw: dict[str, Any] = field(default_factory=dict)
    output: str = ""


def run(client: Client, base_url: str, key: str) -> Report:
    """Make its environment if need be, and run its script."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    environment |= {"BASE_URL": base_url, "API_KEY": key, "CLIENT": user_of(client)}
    environment |= {"NODE_NO_WARNINGS": "1", "NO_PROXY": "127.0.0.1", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command_of(client), env=environment, capture_output=True, text=True, timeout=400)
        output, errors = done.stdout, f"exit code {done.returncode}\n{done.stderr}"
    except subprocess.TimeoutExpired as late:
        output, errors = (late.stdout or b"").decode(), "it did not end in 400 seconds"
    report = Report(output=f"{output[-2000:]}\n{errors[-4000:]}")
    for line in output.splitlines():
        if line.startswith('{"case"'):
            item = json.loads(line)
            report.saw[item["case"]] = item["saw"]
    return report


def user_of(client: Client) -> str:
    return client.name.replace(" ", "-")


@pytest.fixture(scope="session")
def reports(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Report]]]:
    """The reports of the scripts that are asked for, which run beside each other."""
    with serving(tmp_path_factory.mktemp("clients")) as server, ThreadPoolExecutor(3) as pool:
        cases = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
        asked = [case["client"] for case in cases if "client" in case]
        chosen = [client for client in CLIENTS if client in asked and (node() or not client.needs_node)]
        keys = {client: server.key(user_of(client)) for client in chosen}
        yield {client.name: pool.submit(run, client, server.base_url, keys[client]) for client in chosen}


def cases() -> Iterator[Any]:
    for client in CLIENTS:
        for name, expected in EXPECTED[client.name].items():
            part = PENDING.get(client.name, {}).get(name)
            marks = [pytest.mark.xfail(strict=True, reason=f"waits for: {part}", raises=AssertionError)] if part else []
            yield pytest.param(client, name, expected, marks=marks, id=f"{client.name}-{name}")


@pytest.mark.parametrize(("client", "name", "expected"), list(cases()))
def test_the_client_sees_what_its_users_expect(
    reports: dict[str, Future[Report]], client: Client, name: str, expected: Any
) -> None:
    if client.name not in reports:
        pytest.skip("node and npm are not there")
    report = reports[client.name].result()
    saw = report.saw.get(name, ANY)
    if saw == ANY:
        raise RuntimeError(f"{client.name} did not report {name!r}:\n{report.output}")
    assert saw == expected


def test_every_case_that_a_script_has_is_expected_something_of(reports: dict[str, Future[Report]]) -> None:
    for name, report in reports.items():
        assert sorted(report.result().saw) == sorted(EXPECTED[name]), name


@pytest.mark.parametrize("heading", list(DOCUMENTED))
def test_the_program_of_the_documents_runs(heading: str, tmp_path: Path) -> None:
    [client] = [each for each in CLIENTS if each.name == DOCUMENTED[heading]]
    if client.needs_node and not node():
        pytest.skip("node and npm are not there")
    [block] = [each for each in BLOCKS if each.heading == heading and each.language in ("python", "js")]
    with serving(tmp_path) as server:
        text = re.sub(r"(?<=[\"'/])assistant(?=[\"'])", "solo", block.text)
        text = text.replace("http://127.0.0.1:8000", server.base_url.removesuffix("/v1"))
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        kept |= {"HOME": str(tmp_path), "IS_SANDBOX": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        done = subprocess.run(
            command_for(client, text, tmp_path),
            cwd=tmp_path,
            env={**kept, "DRSAI_API_KEY": server.key("me"), "NO_PROXY": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Hello." in done.stdout, done.stdout + done.stderr


def test_every_pending_case_is_one() -> None:
    for name, waiting in PENDING.items():
        assert waiting.keys() <= EXPECTED[name].keys(), name
