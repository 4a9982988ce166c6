"""The wheel holds what an installation needs and nothing else. CI also installs it elsewhere and uses it."""

from __future__ import annotations

import email
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import drsai_backend

ROOT = Path(__file__).resolve().parents[2]


def build(target: str, directory: Path) -> Path:
    """Built by the backend itself, which needs no network."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(directory)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = directory.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def files(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def test_every_module_is_inside(files: set[str]) -> None:
    expected = {str(path.relative_to(ROOT)) for path in (ROOT / "drsai_backend").rglob("*.py")}
    assert expected - files == set()
    assert "drsai_backend/py.typed" in files


def test_the_migrations_are_inside(files: set[str]) -> None:
    scripts = [path for path in (ROOT / "migrations").rglob("*") if path.suffix in {".py", ".mako", ".sql"}]
    assert scripts
    assert {f"drsai_backend/{path.relative_to(ROOT)}" for path in scripts} - files == set()


def test_the_console_is_inside(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    page = archive.read("drsai_backend/api/pages/console/index.html").decode()
    loaded = re.findall(r'(?:src|href)="\./(assets/[^"]+)"', page)
    assert {Path(each).suffix for each in loaded} == {".js", ".css"}
    assert {f"drsai_backend/api/pages/console/{each}" for each in loaded} <= {*archive.namelist()}


def test_nothing_else_is_inside(files: set[str]) -> None:
    roots = {name.split("/", 1)[0] for name in files}
    assert roots == {"drsai_backend", f"drsai_backend-{drsai_backend.__version__}.dist-info"}
    assert [name for name in files if name.endswith((".pyc", ".db", ".env", ".key"))] == []


def test_metadata(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    info = f"drsai_backend-{drsai_backend.__version__}.dist-info"
    metadata = email.message_from_bytes(archive.read(f"{info}/METADATA"))
    assert metadata["Name"] == "drsai-backend"
    assert metadata["Version"] == drsai_backend.__version__
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Requires-Python"] == ">=3.11"
    assert "websockets<18,>=15" in metadata.get_all("Requires-Dist", []), "a plain install serves WebSockets"
    assert "drsai serve" in str(metadata.get_payload())
    assert b"drsai = drsai_backend.cli:main" in archive.read(f"{info}/entry_points.txt")
    assert b"The drsai_backend maintainers" in archive.read(f"{info}/licenses/LICENSE")


def test_the_source_distribution_is_complete(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {
        "LICENSE",
        "README.md",
        "README.zh-CN.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "UPGRADING.md",
        "console/package-lock.json",
        "console/src/main.tsx",
        "pyproject.toml",
        "alembic.ini",
        "migrations/env.py",
        "drsai_backend/py.typed",
        "examples/teams.yaml",
        "tests/conftest.py",
        "docs/architecture/index.md",
    } <= names
    assert [name for name in names if name.endswith((".pyc", ".db", ".env", ".key"))] == []
