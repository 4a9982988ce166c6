"""`file_reader`: what is read of the allowed folders, and what is never opened."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest

from drsai_backend.config import Settings
from drsai_backend.errors import ConfigurationError
from drsai_backend.tools import ToolBase
from drsai_backend.tools.builtin import builtin_tools, files
from tests.tools.builtin.calling import said


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / "inner").mkdir(parents=True)
    (folder / "a.txt").write_text("one\ntwo\nthree\n", encoding="utf-8")
    (folder / "inner" / "b.md").write_text("# Ü", encoding="utf-8")
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    (tmp_path / "docs-too").mkdir()
    (tmp_path / "docs-too" / "c.txt").write_text("secret", encoding="utf-8")
    return folder


def reader(*folders: Path, **options: Any) -> ToolBase:
    settings = Settings(_env_file=None, file_folders=",".join(map(str, folders)))  # type: ignore[arg-type]
    return builtin_tools(["file_reader"], settings, file_reader=options)[0]


async def test_files_and_folders(docs: Path) -> None:
    tool = reader(docs)
    assert await said(tool) == "a.txt (14 bytes)\ninner/"
    assert await said(tool, path="a.txt") == "one\ntwo\nthree"
    assert await said(tool, path="inner/b.md") == "# Ü"
    assert await said(tool, path=str(docs / "inner")) == "b.md (4 bytes)"
    assert await said(tool, path="a.txt", offset=2, limit=1) == "two\n(Lines 2 to 2 of 3.)"
    assert "has 3 lines" in await said(tool, path="a.txt", offset=4)
    assert (await said(tool, path="a.txt", offset=0)).startswith("! ")


async def test_several_folders(docs: Path) -> None:
    tool = reader(docs, docs.parent / "docs-too")
    assert await said(tool) == "docs/\ndocs-too/"
    assert await said(tool, path="docs-too/c.txt") == "secret"
    assert await said(tool, path="docs/a.txt", limit=1) == "one\n(Lines 1 to 1 of 3.)"
    assert await said(tool, path="a.txt") == "! A path begins with one of: docs, docs-too."


@pytest.mark.parametrize(
    "path",
    ["../secret.txt", "inner/../../secret.txt", "inner/../a.txt", "{}/secret.txt", "{}/docs-too/c.txt", "/etc/passwd",
     "/dev/zero", "/proc/self/environ", "//etc/passwd", "link", "inner/link/secret.txt", "chain", "a\0b", "~/x", "none",
     "a.txt/b", "x" * 4_000, "x/" * 1_500, "loop", "\ud800"],
)  # fmt: skip
async def test_nothing_outside_is_read(docs: Path, path: str) -> None:
    (docs / "link").symlink_to(docs.parent / "secret.txt")
    (docs / "chain").symlink_to("link")
    (docs / "loop").symlink_to("loop")
    (docs / "inner" / "link").symlink_to("../..")
    told = await said(reader(docs), path=path.format(docs.parent))
    assert told.startswith("! ")
    assert "secret" not in told.replace("secret.txt", "")
    assert "Traceback" not in told
    assert "file_reader failed" not in told, "an error that nobody thought of"


async def test_a_link_inside_is_followed(docs: Path) -> None:
    (docs / "link").symlink_to("inner/b.md")
    assert await said(reader(docs), path="link") == "# Ü"
    assert "link (a link)" in await said(reader(docs))


async def test_a_link_that_is_put_there_meanwhile(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at a path and its opening somebody puts a link in its place."""
    resolve = os.path.realpath

    def late(path: Any, **options: Any) -> str:
        found = resolve(path, **options)
        if str(path).endswith("b.md") and not (docs / "inner").is_symlink():
            (docs / "inner" / "b.md").unlink()
            (docs / "inner").rmdir()
            (docs.parent / "b.md").write_text("secret")
            (docs / "inner").symlink_to("..")
        return found

    monkeypatch.setattr(os.path, "realpath", late)
    assert (await said(reader(docs), path="inner/b.md")).startswith("! ")


async def test_devices_pipes_and_sockets(docs: Path) -> None:
    os.mkfifo(docs / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(docs / "socket"))
        for name in ("pipe", "socket"):
            assert "neither a file nor a folder" in await said(reader(docs), path=name)
            assert f"{name} (no file)" in await said(reader(docs))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "(The file is empty.)"),
        (b"\x7fELF\0\0", "! 'f' is no text but a binary file of 6 bytes."),
        (b"%PDF-1.7\n\x01\x02", "! 'f' is no text"),
        ("Grüße".encode("utf-16"), "Grüße"),
        (b"\xef\xbb\xbfx", "x"),
        ("Grüße".encode("latin-1"), "Grüße"),
        (b"x" * 1_001, "! 'f' is longer than 1000 bytes"),
        (b"a\r\nb", "a\nb"),
    ],
)
async def test_kinds_of_files(docs: Path, content: bytes, text: str) -> None:
    (docs / "f").write_bytes(content)
    assert (await said(reader(docs, max_bytes=1_000), path="f")).startswith(text)


async def test_a_file_that_must_not_be_read(docs: Path) -> None:
    (docs / "a.txt").chmod(0)
    if (user := os.geteuid()) != 0:
        assert await said(reader(docs), path="a.txt") == "! 'a.txt' must not be read."
        return
    # Root may read everything. Another user must get through the folders above, which pytest keeps to itself.
    with tempfile.TemporaryDirectory(prefix="drsai-files-", dir="/tmp") as name:
        os.chmod(name, 0o711)
        tool = reader(Path(shutil.copytree(docs, f"{name}/docs")))
        os.seteuid(65534)
        try:
            assert await said(tool, path="a.txt") == "! 'a.txt' must not be read."
        finally:
            os.seteuid(user)


async def test_a_folder_of_many(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_ENTRIES", 3)
    for number in range(9):
        (docs / f"f{number}").touch()
    told = await said(reader(docs))
    assert told.splitlines() == ["a.txt (14 bytes)", "f0 (0 bytes)", "f1 (0 bytes)",
                                 "(The folder has 11 entries, of which 3 are shown.)"]  # fmt: skip
    monkeypatch.setattr(files, "_SEEN", 5)
    assert "has more than 5 entries" in await said(reader(docs))
    (docs / "inner" / "b.md").unlink()
    assert await said(reader(docs), path="inner") == "(The folder 'inner' is empty.)"


def test_folders_that_cannot_be_read(docs: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^file_reader: folders: .*DRSAI_FILE_FOLDERS"):
        reader()
    with pytest.raises(ConfigurationError, match="is no folder"):
        reader(docs / "a.txt")
    (docs / "docs").mkdir()
    with pytest.raises(ConfigurationError, match="two have the name 'docs'"):
        reader(docs, docs / "docs")
