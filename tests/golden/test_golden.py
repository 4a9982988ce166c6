"""What clients, users and stored rows rely on is what it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden import digests, documents, hour, refusals
from tests.golden.lines import compare, frozen


def test_the_openapi_document(pytestconfig: pytest.Config) -> None:
    compare("openapi", documents.document(), pytestconfig)


def test_the_commands(pytestconfig: pytest.Config) -> None:
    compare("commands", documents.commands(), pytestconfig)


async def test_refusals_of_routes(migrated_sqlite: str, pytestconfig: pytest.Config) -> None:
    compare("refusals", await refusals.of_routes(migrated_sqlite), pytestconfig)


def test_refusals_of_settings(pytestconfig: pytest.Config) -> None:
    compare("settings", refusals.of_settings(), pytestconfig)


def test_refusals_of_definitions(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    compare("definitions", refusals.of_definitions(tmp_path), pytestconfig)


async def test_the_rows_of_an_hour(database_url: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """The same on both databases. Digests are those of the release before, and what is new besides them."""
    async with hour.lived(database_url, tmp_path):
        rows = [*hour.rows(database_url)]
    found = {*digests.of_values(), *digests.of_rows(rows)}
    assert [each for each in frozen("digests") if each not in found] == []
    compare("rows", rows, pytestconfig)
