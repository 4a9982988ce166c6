"""What any released version has ever stored loads for ever. A folder per format version; files are never changed.

A new format version gets a folder of its own: `python -m tests.state.test_corpus` writes it, and refuses to overwrite.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from drsai_backend.state import (
    FORMAT_VERSION,
    Document,
    Entry,
    decode_document,
    decode_state,
    encode_document,
    encode_state,
    expand,
    fold,
)
from drsai_backend.state.codec import SHORT_VERSION
from tests.support.running import Stored, TurnRun
from tests.support.teams.scenarios import SCENARIOS

CORPUS = Path(__file__).parent / "corpus"
VERSIONS = (FORMAT_VERSION, SHORT_VERSION)
"""Those of today: entries of the second are short, after the first one of a thread."""
TEAMS = {scenario.name: scenario for scenario in SCENARIOS}
KEPT = [
    "combined_conditions",
    "foreign",
    "graph_loop",
    "magentic",
    "nested",
    "selector_model",
    "society",
    "swarm",
    "tools",
]
cases = pytest.mark.parametrize(
    "folder", sorted(CORPUS.glob("v*/*")), ids=lambda folder: f"{folder.parent.name}-{folder.name}"
)


def _load(folder: Path) -> tuple[list[str], dict[int, Any], Any]:
    payloads = (folder / "entries.txt").read_text().split()
    configs = {int(seq): config for seq, config in json.loads((folder / "messages.json").read_text()).items()}
    return payloads, configs, json.loads((folder / "expected.json").read_text())


@pytest.mark.parametrize("version", VERSIONS)
def test_the_present_versions_are_kept(version: int) -> None:
    assert {folder.name for folder in (CORPUS / f"v{version}").iterdir()} == set(KEPT)


@cases
def test_it_still_decodes(folder: Path) -> None:
    payloads, configs, expected = _load(folder)
    assert decode_state((folder / "state.txt").read_text().strip()) == expected["state"]
    snapshot: Document | None = decode_document((folder / "snapshot.txt").read_text().strip())
    for document in (
        fold(None, map(Entry.decode, payloads)),
        fold(snapshot, map(Entry.decode, payloads[expected["at"] :])),
    ):
        assert document is not None
        state, extras = expand(document, configs)
        assert state == expected["state"]
        assert extras == expected["extras"]
        assert document.resume.to_json() == expected["resume"]


@cases
async def test_a_team_still_goes_on_with_it(folder: Path) -> None:
    payloads, configs, _ = _load(folder)
    scenario = TEAMS[folder.name]
    for upto in range(1, len(payloads) + 1):
        stored = Stored()
        stored.payloads, stored.configs = payloads[:upto], dict(configs)
        document = stored.document()
        run = TurnRun(scenario.build(False), stored)
        await run.prepare()
        await run.session.load(document, configs)
        pending = document.resume.pending
        await (run.run(scenario.tasks[-1]) if pending is None else run.run(pending=pending))
        assert run.emitted


async def _made(name: str) -> Stored:
    scenario = TEAMS[name]
    stored = Stored()
    run = TurnRun(scenario.build(False), stored)
    await run.prepare()
    for task in scenario.tasks:
        await run.run(task)
    return stored


def _write(folder: Path) -> None:
    stored = asyncio.run(_made(folder.name))
    document = stored.document()
    state, extras = expand(document, stored.configs)
    at = len(stored.payloads) // 2
    snapshot = fold(None, map(Entry.decode, stored.payloads[:at]))
    assert snapshot is not None
    folder.mkdir(parents=True)
    (folder / "entries.txt").write_text("\n".join(stored.payloads) + "\n")
    (folder / "snapshot.txt").write_text(encode_document(snapshot) + "\n")
    (folder / "state.txt").write_text(encode_state(state) + "\n")
    (folder / "messages.json").write_text(json.dumps(stored.configs) + "\n")
    expected = {"at": at, "state": state, "extras": extras, "resume": document.resume.to_json()}
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    for version in VERSIONS:
        if not (CORPUS / f"v{version}").exists():
            for name in KEPT:
                _write(CORPUS / f"v{version}" / name)
