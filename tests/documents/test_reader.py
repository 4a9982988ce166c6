"""The reader reads each file in a process of its own, and no file harms this one."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from drsai_backend.documents import Reader, ReadLimits, chunk, extract, reader
from drsai_backend.documents.base import MIB
from drsai_backend.errors import (
    ConfigurationError,
    DocumentEmpty,
    DocumentProtected,
    DocumentTooLarge,
    DocumentUnreadable,
    DocumentUnsupported,
)
from tests.documents.made import make_pdf, simple_page

HANDBOOK = "# Handbook\n\nWelcome.\n\n## Leave\n\nThirty days a year. 每年三十天。\n"


async def test_it_reads_as_extract_does() -> None:
    read = await Reader().read("handbook.md", HANDBOOK.encode())
    assert read == extract("handbook.md", HANDBOOK.encode())
    assert [(block.kind, block.level) for block in read.blocks] == [
        ("heading", 1), ("paragraph", 0), ("heading", 2), ("paragraph", 0)
    ]  # fmt: skip
    assert read.text == HANDBOOK.strip()


async def test_it_cuts_as_chunk_does() -> None:
    content = (HANDBOOK * 20).encode()
    read = await Reader().chunks("handbook.md", content, size=32, overlap=8)
    assert read.chunks == chunk(extract("handbook.md", content), 32, 8)
    assert read.media_type == "text/markdown"
    assert read.chunks[-1].headings[0] == "Handbook"
    with pytest.raises(ConfigurationError):
        await Reader().chunks("handbook.md", content, size=8)
    with pytest.raises(ConfigurationError):
        await Reader().chunks("handbook.md", content, size=100, overlap=51)


@pytest.mark.parametrize(
    ("name", "content", "refusal"),
    [
        ("a.txt", b"", DocumentEmpty),
        ("a.txt", b"\0 \n\0", DocumentEmpty),
        ("a.pdf", make_pdf([[]]), DocumentEmpty),
        ("a.txt", os.urandom(5_000), DocumentUnsupported),
        ("a.png", b"\x89PNG\r\n\x1a\n" + bytes(200), DocumentUnsupported),
        ("a.pdf", make_pdf([simple_page("Text.")])[:200], DocumentUnreadable),
        ("a.pdf", b"%PDF-1.7\n" + os.urandom(2_000), DocumentUnreadable),
        ("a.docx", b"PK\x03\x04" + os.urandom(2_000), DocumentUnreadable),
        ("a.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), DocumentUnsupported),
        (
            "a.docx",
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600) + "EncryptedPackage".encode("utf-16-le"),
            DocumentProtected,
        ),
    ],
)
async def test_a_file_that_is_none_is_refused_by_its_kind(
    name: str, content: bytes, refusal: type[DocumentUnreadable]
) -> None:
    with pytest.raises(DocumentUnreadable) as raised:
        await Reader().read(name, content)
    assert type(raised.value) is refusal
    assert "Traceback" not in raised.value.message


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    content=st.binary(max_size=2_000),
    head=st.sampled_from(
        [b"", b"%PDF-1.5\n", b"PK\x03\x04", b"<html>", b"{", b"\xff\xfe", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"]
    ),
    ending=st.sampled_from(["pdf", "docx", "html", "md", "csv", "json", "py", "", "\ud800"]),
)
@example(content=b"", head=b"", ending="pdf")
async def test_no_bytes_do_anything_but_be_read_or_refused(content: bytes, head: bytes, ending: str) -> None:
    try:
        read = await Reader().chunks(f"a.{ending}", head + content)
    except DocumentUnreadable:
        return
    assert read.chunks


async def test_a_file_beyond_the_limits_is_refused_before_a_process_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_CHILD", Path("/nowhere"))
    with pytest.raises(DocumentTooLarge, match="11 bytes; it may have 10"):
        await Reader(ReadLimits(content=10)).read("a.txt", b"x" * 11)


async def test_more_text_and_more_pages_than_may_be_are_refused() -> None:
    with pytest.raises(DocumentTooLarge, match="100 characters"):
        await Reader(ReadLimits(text=100)).read("a.txt", b"word " * 100)
    with pytest.raises(DocumentTooLarge, match="3 pages; it may have 2"):
        await Reader(ReadLimits(pages=2)).read("a.pdf", make_pdf([simple_page("Text.")] * 3))


def program(folder: Path, body: str) -> Path:
    """A child that does something else."""
    path = folder / "child.py"
    path.write_text(f"def main(data):\n    {body}\n")
    return path


async def test_a_reader_that_hangs_is_ended_and_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(reader, "_CHILD", program(tmp_path, "while True: pass"))
    with pytest.raises(DocumentTooLarge, match="within 1 seconds"):
        await Reader(ReadLimits(seconds=1)).read("a.txt", b"text")
    assert children() == []


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such limit")
async def test_a_reader_that_takes_too_much_memory_is_ended_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    little = Reader(ReadLimits(memory=256 * MIB))
    with pytest.raises(DocumentTooLarge, match="memory"):
        await little.read("a.json", b"[" + b"[]," * 4_000_000 + b"[]]")
    monkeypatch.setattr(reader, "_CHILD", program(tmp_path, "return bytes(1 << 30)"))
    with pytest.raises(DocumentUnreadable, match="memory"):
        await little.read("a.txt", b"text")
    assert children() == []


async def test_a_reader_that_dies_or_answers_nonsense_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(reader, "_CHILD", program(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"))
    with pytest.raises(DocumentUnreadable, match="ended"):
        await Reader().read("a.txt", b"text")
    monkeypatch.setattr(reader, "_CHILD", program(tmp_path, "return b'[1]'"))
    with pytest.raises(DocumentUnreadable, match="ended"):
        await Reader().read("a.txt", b"text 2")


async def test_a_reader_that_is_cancelled_leaves_no_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    began = tmp_path / "began"
    monkeypatch.setattr(reader, "_CHILD", program(tmp_path, f"open({str(began)!r}, 'w').close()\n    while True: pass"))
    task = asyncio.create_task(Reader().read("a.txt", b"text"))
    await until(began)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert children() == []


async def test_files_are_read_one_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    body = f"""import os, time
    os.close(os.open({str(mark)!r}, os.O_CREAT | os.O_EXCL))
    time.sleep(0.2)
    os.remove({str(mark)!r})
    return b'{{"code": "document_empty", "message": "read"}}'"""
    monkeypatch.setattr(reader, "_CHILD", program(tmp_path, body))
    one = Reader()
    ends = await asyncio.gather(*(one.read("a.txt", b"text") for _ in range(3)), return_exceptions=True)
    assert [str(end) for end in ends] == ["read"] * 3


async def test_the_process_knows_nothing_of_this_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DRSAI_SECRET", "planted")
    seen = tmp_path / "seen"
    monkeypatch.setattr(
        reader, "_CHILD", program(tmp_path, f"import os; open({str(seen)!r}, 'w').write(str(os.environ)); return b''")
    )
    with pytest.raises(DocumentUnreadable):
        await Reader().read("a.txt", b"text")
    assert "environ" in seen.read_text()
    assert "planted" not in seen.read_text()


def children() -> list[psutil.Process]:
    return [each for each in psutil.Process().children(recursive=True) if "runpy" in " ".join(each.cmdline())]


async def until(path: Path) -> None:
    """Wait for a file."""
    async with asyncio.timeout(30):
        while not path.exists():  # noqa: ASYNC110, ASYNC240 - another process makes it
            await asyncio.sleep(0.01)
