"""The doctor looks at everything that a deployment needs, changes nothing, and says what is wrong and what to do."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final, Literal, NamedTuple

from autogen_core.models import ChatCompletionClient, UserMessage

from drsai_backend import jobs
from drsai_backend.access.principal import Principal
from drsai_backend.cli.database import check_exists, show_url
from drsai_backend.cli.screen import in_line, make_console, print_json
from drsai_backend.config import Settings
from drsai_backend.database import encryption, migrations, schemas
from drsai_backend.database.manager import rotation
from drsai_backend.database.standing import clock, standing
from drsai_backend.definitions import load_all
from drsai_backend.drsai import DrSai
from drsai_backend.errors import DrSaiError
from drsai_backend.features.extensions import kinds_of, means_of, schemas_of
from drsai_backend.features.knowledge.keeping import files_of
from drsai_backend.teams.context import RunContext
from drsai_backend.teams.registry import TeamRegistry

Status = Literal["ok", "warning", "failed"]
_SIGNS: Final = {"ok": "[green]✓[/]", "warning": "[yellow]![/]", "failed": "[bold red]✗[/]"}
_SKEW: Final = timedelta(seconds=1)
_LITTLE: Final = 1024**3
_TOO_LITTLE: Final = 100 * 1024**2
_PATIENCE: Final = 30.0
_TOLD: Final = 5
"""Threads that are named for each reason."""


class Finding(NamedTuple):
    """What was found of one subject.

    Attributes:
        subject: in a word or two.
        status: `warning` is worth a look, with `failed` something does not work.
        text: what was found, and what to do.
    """

    subject: str
    status: Status
    text: str


async def examine(settings: Settings, teams: Sequence[str] | None, *, ask_model: bool) -> AsyncGenerator[Finding]:
    """Look at one subject after the other. Where one cannot be looked at, what needs it is left out.

    Args:
        teams: files and modules, as for `drsai serve`; None: the built-in ones.
        ask_model: whether the model endpoint is asked a word.
    """
    try:
        given = load_all([*teams], means_of(settings)) if teams else None
        drsai = DrSai(given, settings=settings)
    except DrSaiError as error:
        for each in getattr(error, "problems", (error.message,)):
            yield Finding("teams", "failed", str(each))
        return
    yield Finding("teams", "ok", ", ".join(drsai.engine.teams.names()))
    for finding in _of_files(drsai.engine.teams):
        yield finding
    try:
        check_exists(drsai.database)
        await asyncio.to_thread(migrations.check_schema, drsai.database.url, schemas_of(kinds_of(settings)))
    except DrSaiError as error:
        yield Finding("database", "failed", f"{show_url(drsai.database)}: {error.message}")
        return
    async with drsai.looked_at():
        can_read = True
        async for finding in _of_database(drsai):
            can_read &= (finding.subject, finding.status) != ("texts", "failed")
            yield finding
        for finding in _of_disks(drsai):
            yield finding
        async for finding in _of_peers(drsai, ask_model=ask_model):
            yield finding
        if can_read:
            async for finding in _of_threads(drsai):
                yield finding


def _of_files(teams: TeamRegistry) -> Iterator[Finding]:
    """Look whether this machine has the files that definitions name. URLs are not asked."""
    for each in dict.fromkeys(each for name in teams for each in teams.get(name).options.files):
        for text in (text for text in each.named if "://" not in text):
            try:
                files_of(text, Path(each.folder))
            except DrSaiError as error:
                yield Finding("files", "warning", f"agent {each.store}: {error.message}")


async def _of_database(drsai: DrSai) -> AsyncIterator[Finding]:
    database, began = drsai.database, time.perf_counter()
    try:
        await drsai.db.try_write()
    except DrSaiError as error:
        yield Finding("database", "failed", error.message)
        return
    took = (time.perf_counter() - began) * 1000
    head = migrations.head(schemas.CORE)
    yield Finding("database", "ok", f"{show_url(database)} at {head}; a write takes {took:.1f} ms")
    if database.dialect == "postgresql":
        before = datetime.now(UTC)
        there = await database.read(clock)
        away = max(before - there, there - datetime.now(UTC), timedelta())
        text = f"the database's and this machine's are {away.total_seconds():.1f} s apart"
        yield Finding("clock", "warning" if away > _SKEW else "ok", text + (": set them" if away > _SKEW else ""))
    try:
        secrets = await rotation.examine(database, drsai.db.secrets)
    except DrSaiError as error:
        yield Finding("secrets", "failed", error.message)
    else:
        yield _of_secrets(secrets)
    yield await _of_texts(drsai)
    stands = await database.read(standing)
    yield Finding("workers", "ok", f"{stands.workers} alive")
    text = f"{stands.due} to do, {stands.failed} failed for good"
    if database.dialect == "postgresql" and not jobs.available():
        yield Finding("jobs", "warning", f"{text}; without the extra `postgres`, workers only look every few seconds")
    else:
        yield Finding("jobs", "warning" if stands.failed else "ok", text)


def _of_secrets(found: rotation.Rotated) -> Finding:
    if found.unreadable:
        text = f"{found.unreadable} stored secrets can be read with none that is set: set the one before as "
        return Finding("secrets", "failed", f"{text}DRSAI_SECRET_KEY_OLD, or find the key file")
    if found.left:
        text = f"{found.left} stored secrets are encrypted with an older one: `drsai keys rotate-secret`"
        return Finding("secrets", "warning", text)
    return Finding("secrets", "ok", "all that is stored can be read")


async def _of_texts(drsai: DrSai) -> Finding:
    """Look whether the stored texts can be read, and are encrypted as the settings say."""
    database, keys = drsai.database, drsai.database.text_keys
    try:
        await asyncio.to_thread(partial(encryption.check_keys, database, notes=False))
    except DrSaiError as error:
        return Finding("texts", "failed", error.message)
    if keys is None:
        return Finding("texts", "ok", "stored in clear: DRSAI_ENCRYPTION_KEYS is not set")
    state = "encrypted with the key " + keys.newest if keys.newest else "to be stored in clear"
    if left := await database.read(partial(encryption.waiting, keys=keys)):
        return Finding("texts", "warning", f"{state}, but for {left} rows: `drsai db encrypt`")
    if drsai.settings.files_folder is not None and keys.newest:
        return Finding("texts", "warning", f"{state}; files in DRSAI_FILES_FOLDER are not")
    return Finding("texts", "ok", state)


def _of_disks(drsai: DrSai) -> Iterator[Finding]:
    """Look at where this machine keeps what is stored."""
    file = drsai.database.sqlite_path
    folders = {None if file is None else Path(file).resolve().parent, drsai.settings.files_folder} - {None}
    for folder in filter(None, folders):
        try:
            free = shutil.disk_usage(folder).free
        except OSError as error:
            yield Finding("disk", "failed", f"{folder}: {error.strerror}")
            continue
        status: Status = "failed" if free < _TOO_LITTLE else "warning" if free < _LITTLE else "ok"
        yield Finding("disk", status, f"{folder}: {free / 1024**3:.1f} GiB are free")


async def _of_peers(drsai: DrSai, *, ask_model: bool) -> AsyncIterator[Finding]:
    """Ask those that runs will ask: the model endpoint and MCP servers."""
    said = drsai.models.describe()
    if drsai.models.is_demo:
        yield Finding("model", "warning", f"{said}: set OPENAI_API_KEY or OPENAI_BASE_URL, and DRSAI_MODEL")
    elif not ask_model:
        yield Finding("model", "ok", f"{said}: not asked (--no-model)")
    else:
        began = time.perf_counter()
        try:
            async with asyncio.timeout(_PATIENCE):
                await _client(drsai).create([UserMessage(content="Say: ok", source="user")])
        except Exception as error:  # noqa: BLE001 - clients raise what their packages do
            yield Finding("model", "failed", f"{said}: {_in_words(error)}")
        else:
            yield Finding("model", "ok", f"{said} answers in {time.perf_counter() - began:.1f} s")
    for server in drsai.mcp.servers:
        if not server.enabled:
            continue
        health = await drsai.mcp.health.of(server, _PATIENCE)
        text = health.error or f"{health.tools} tools, within {health.latency_ms} ms"
        yield Finding("mcp", "ok" if health.up else "failed", f"{server.name}: {text}")


def _client(drsai: DrSai) -> ChatCompletionClient:
    """The client of a run, which keeps to what its endpoint takes."""
    context = RunContext(
        Principal(), thread_id="", run_id="", input_values={}, db_manager=drsai.db, models=drsai.models
    )
    return context.model_client()


def _in_words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {_PATIENCE:g} s"
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


async def _of_threads(drsai: DrSai) -> AsyncIterator[Finding]:
    """Look whether each stored state can be loaded into today's teams."""
    fine, lacking, wrong = 0, Counter[str](), dict[str, list[str]]()
    async for trial in drsai.engine.try_threads():
        if trial.wrong is not None:
            wrong.setdefault(f"{trial.team}: {trial.wrong}", []).append(trial.thread.thread_id)
        elif trial.left_out:
            lacking[f"{trial.team}: left out is {'; '.join(trial.left_out)}"] += 1
        else:
            fine += 1
    yield Finding("threads", "ok", f"{fine} load as they are")
    for text, count in lacking.most_common():
        yield Finding("threads", "warning", f"{count} of {text}")
    for text, names in sorted(wrong.items(), key=lambda item: -len(item[1])):
        more = ", …" if len(names) > _TOLD else ""
        yield Finding("threads", "failed", f"{len(names)} of {text} ({', '.join(names[:_TOLD])}{more})")


def doctor(settings: Settings, teams: Sequence[str] | None, *, ask_model: bool, as_json: bool) -> bool:
    """Print each finding as it is made. Returns whether all works."""
    return asyncio.run(_told(settings, teams, ask_model, as_json))


async def _told(settings: Settings, teams: Sequence[str] | None, ask_model: bool, as_json: bool) -> bool:
    console, found = make_console(stderr=as_json), list[Finding]()
    async for finding in examine(settings, teams, ask_model=ask_model):
        found.append(finding)
        subject = "" if len(found) > 1 and found[-2].subject == finding.subject else finding.subject
        console.print(f"{_SIGNS[finding.status]} [bold]{subject:<9}[/] {in_line(finding.text)}", soft_wrap=True)
    is_well = all(each.status != "failed" for each in found)
    if as_json:
        print_json({"ok": is_well, "findings": [each._asdict() for each in found]})
    return is_well
