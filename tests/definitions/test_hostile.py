"""Definitions as an attacker writes them: refused with a sentence, in a time that does not grow with the harm."""

from __future__ import annotations

import json
import os
import time
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from drsai_backend import RunContext
from drsai_backend.access.principal import Principal
from drsai_backend.config import Settings
from drsai_backend.definitions import DefinitionError, DefinitionPolicy, load, read_definitions
from drsai_backend.definitions.source import MAX_BYTES
from drsai_backend.definitions.templates import prompt_of
from drsai_backend.features.stored_definitions import commands
from drsai_backend.models import ModelClientFactory
from drsai_backend.tools.http import HttpTool

SECRET = "sk-do-not-tell"
AGENT = "agents:\n  ann: {prompt: Hi.}\n"
_NINE = "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))


def _layers(count: int, width: int) -> str:
    """Agents that have all agents of the next layer as tools."""
    lines = ["agents:"]
    for layer, place in product(range(count), range(width)):
        used = ", ".join(f"{{agent: l{layer + 1}_{each}}}" for each in range(width)) if layer + 1 < count else ""
        lines.append(f"  l{layer}_{place}: {{tools: [{used}]}}")
    return "\n".join(lines)


def _chain(count: int) -> str:
    lines = [f"  a{number}: {{tools: [{{agent: a{number + 1}}}]}}" for number in range(count)]
    return "\n".join(["agents:", *lines, f"  a{count}: {{}}"])


def _agents(count: int, field: str) -> str:
    return "\n".join(["agents:", *(f"  agent_number_{number}: {{{field}}}" for number in range(count))])


BAD = {
    "open brackets": ("agents: " + "[" * 3_000, "nested too deeply"),
    "brackets": ("agents: " + "[" * 100 + "]" * 100, "nested too deeply"),
    "aliases": ("a: &a [x, x, x, x, x, x, x, x, x]\n" + _NINE, "too many parts"),
    "an alias of itself": ("agents: &a {x: *a}\n", "too many parts"),
    "a merge": ("agents:\n  ann: &a {prompt: Hi.}\n  bob: {<<: *a}\n", "`<<` is not known"),
    "code": ("agents:\n  ann: {prompt: !!python/object/apply:os.system [id]}\n", "cannot be read as tag"),
    "a name of Python's": ("agents:\n  ann: {prompt: !!python/name:os.system ''}\n", "cannot be read as !!python"),
    "a tag of one's own": ("agents:\n  ann: {prompt: !x y}\n", "cannot be read as !x"),
    "a tagged key": ("agents:\n  !x ann: {prompt: y}\n", "cannot be read as !x"),
    "no whole number": ("agents:\n  ann: {max_iterations: !!int x}\n", "cannot be read as !!int"),
    "no truth": ("agents:\n  ann: {stream: !!bool x}\n", "cannot be read as !!bool"),
    "no day": ("agents:\n  ann: {prompt: 2026-99-99}\n", "cannot be read as !!timestamp"),
    "many digits": (f"agents:\n  ann: {{max_iterations: {'1' * 5_000}}}\n", "cannot be read as !!int"),
    "digits": (f"agents:\n  ann: {{model: {{seed: {'1' * 19}}}}}\n", "at most 18 digits"),
    "infinity": ("agents:\n  ann: {model: {temperature: .inf}}\n", "finite number"),
    "no number": ("agents:\n  ann: {model: {temperature: .nan}}\n", "finite number"),
    "a long text": ("agents:\n  ann:\n    prompt: " + "x" * 300_000, "at most 200000 characters"),
    "a long name": ("agents:\n  ann: {tools: [" + "x" * 300_000 + "]}\n", "there is no tool"),
    "a long key": ("agents:\n  ann: {? " + "x" * 900 + "\n  : 1}\n", "no such field"),
    "open variables": ("agents:\n  ann:\n    prompt: " + "${a:-" * 50_000, "at most 200000 characters"),
    "wrong fields": (_agents(500, "promt: x"), "did you mean 'prompt'?"),
    "wrong names": (_agents(500, "tools: [{agent: agent_numbr_7}]"), "there is more that is wrong"),
    "a long chain": (_chain(100), "too deep"),
    "too many parts": (_layers(5, 7), "more than 1000 agents and teams"),
    "a router in a circle": (
        "agents:\n  ann: {strategy: {kind: router, skills: [{agent: bob, when: always}]}}\n"
        "  bob: {tools: [{agent: ann}]}\n",
        "is a part of itself: ann → bob → ann",
    ),
    "a module's module": ("agents:\n  ann: {tools: [{python: 'tests..os:x'}]}\n", "must be the import path"),
    "what begins alike": ("agents:\n  ann: {tools: [{python: 'testsevil:x'}]}\n", "testsevil may not be named"),
    "a secret as a kind": (AGENT + "teams: {t: {kind: '${SECRET}', participants: [ann]}}\n", "'${SECRET}'"),
    "a secret as a tool": ("agents: {ann: {tools: ['${SECRET}']}}\n", "'${SECRET}'"),
    "a secret as a member": (
        AGENT + "teams: {t: {kind: swarm, participants: [ann], answered_by: 'x${SECRET_NAME}'}}\n",
        "'x${SECRET_NAME}'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_refused(name: str, tmp_path: Path) -> None:
    text, said = BAD[name]
    (tmp_path / "team.yaml").write_text(text)
    began = time.process_time()
    with pytest.raises(DefinitionError) as refused:
        read_definitions(str(tmp_path / "team.yaml"), ("tests",), {"SECRET": SECRET, "SECRET_NAME": "donottell"})
    assert said in str(refused.value)
    assert len(refused.value.problems) <= 51
    assert all(len(str(each)) < 5_000 for each in refused.value.problems)
    assert not any(each in str(refused.value) for each in (SECRET, "donottell"))
    assert time.process_time() - began < 10


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    os.symlink("loop", tmp_path / "loop")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"#" * (MAX_BYTES + 1))
    (tmp_path / "secret.txt").write_text(f"{SECRET}\n")
    (tmp_path / "in").mkdir()
    for name in ("loop", "pipe", "large"):
        (tmp_path / name).rename(tmp_path / "in" / name)
    return tmp_path / "in"


@pytest.mark.parametrize(
    ("included", "said"),
    [
        ("loop", "cannot be read"),
        ("pipe", "is no file"),
        (".", "is no file"),
        ("/dev/zero", "is no file"),
        ("large", "may have 1000000"),
        ("a\0b", "no name of a file"),
        ("x" * 300, "cannot be read"),
        ("../secret.txt", "must be a mapping"),
    ],
)
def test_includes(odd: Path, included: str, said: str) -> None:
    """Of a file that is no definition nothing is told but that."""
    (odd / "team.yaml").write_text(AGENT + f"include: [{json.dumps(included)}]\n")
    with pytest.raises(DefinitionError, match=said) as refused:
        read_definitions(str(odd / "team.yaml"))
    assert SECRET not in str(refused.value)


def context(**values: Any) -> RunContext:
    models = ModelClientFactory(Settings(_env_file=None))
    return RunContext(Principal("u"), "t", "r", values, db_manager=None, models=models)  # type: ignore[arg-type]


def _run() -> None: ...


imported = HttpTool  # A class of another package.
number = 3


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("os", "neither a function"),
        ("number", "neither a function"),
        ("product", "is of itertools, which DRSAI_DEFINITION_PACKAGES does not allow"),
        ("imported", "does not allow"),
        ("nobody", "cannot be imported"),
    ],
)
def test_a_module_offers_its_own_alone(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "team.yaml").write_text(f"agents:\n  ann: {{tools: [{{python: '{__name__}:{name}'}}]}}\n")
    with pytest.raises(DefinitionError, match=said):
        load(str(tmp_path / "team.yaml"), DefinitionPolicy(("tests",)))


def test_what_is_shown_has_no_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TELL_NOBODY", SECRET)
    (tmp_path / "more.yaml").write_text("agents: {bob: {prompt: '${TELL_NOBODY}'}}\n")
    (tmp_path / "team.yaml").write_text(
        "include: [more.yaml]\nagents: {ann: {prompt: 'I know ${TELL_NOBODY} and ${NOTHING:-this}.', "
        "model: {profile: x, stop: ['${TELL_NOBODY}']}}}\n"
    )
    commands.show(str(tmp_path / "team.yaml"), None)
    out = capsys.readouterr().out
    assert SECRET not in out
    shown = json.loads(out)["agents"]
    assert shown["ann"]["prompt"] == "I know ${TELL_NOBODY} and ${NOTHING:-this}."
    assert shown["ann"]["model"]["stop"] == shown["bob"]["prompt"].split() == ["${TELL_NOBODY}"]
    assert read_definitions(str(tmp_path / "team.yaml")).agents["bob"].prompt == SECRET


@pytest.mark.parametrize("value", ["{{user_id}}", "\\1 \\g<0>", "{{context.x}}", "${HOME}", {"a": [1]}, None, 3])
def test_values_of_requests_are_no_templates(value: Any) -> None:
    found = prompt_of("[{{context.x}}]", (), context(extra_requests={"context": {"x": value}}))
    assert found == f"[{value}]"
