"""Stores in the console: files that are read before one's eyes, passages where they stand, and who may change what."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Route, expect

from drsai_backend.datamodel.owner import Owner
from drsai_backend.documents import Reader
from drsai_backend.features.knowledge.base import NewFile, NewStore, Question
from drsai_backend.features.knowledge.extension import Knowledge
from tests.console.conftest import Console, Open
from tests.support.threads import until

_HOSTILE = '<img src=x onerror="document.title=1"> \u202egnp.exe ' + "x" * 180
_HANDBOOK = "\n\n".join(f"## Part {n}\n\n" + f"Words of part {n} about nothing much. " * 60 for n in range(12))


async def _store(console: Console, user: str = "anonymous", **files: str) -> str:
    """Make a store with files that are read already; `handbook="text"` is `handbook.md`. Return its id."""
    knowledge, owner = console.drsai.extension(Knowledge), Owner("default", user)
    made = [await console.drsai.files.create(owner, f"{name}.md", text.encode()) for name, text in files.items()]
    new = [NewFile(file_id=each.file_id, attributes={"year": 2020 + n}) for n, each in enumerate(made)]
    store = await knowledge.create(owner, NewStore(name="handbook"), new)

    async def is_read() -> bool:
        return (await knowledge.get(owner, store.store_id)).status == "completed"

    await until(is_read)
    return store.store_id


async def test_files_are_uploaded_and_read_without_a_reload(
    console: Console, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    read, reading = asyncio.Event(), Reader.chunks

    async def held(reader: Reader, *given: Any, **more: Any) -> Any:
        await read.wait()
        return await reading(reader, *given, **more)

    monkeypatch.setattr(Reader, "chunks", held)
    page = await console.open("knowledge")
    await expect(page.get_by_text("No stores yet")).to_be_visible()
    await page.get_by_role("button", name="New store").click()
    await page.get_by_label("Name").fill(_HOSTILE)
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(_HOSTILE)
    await page.evaluate("window.opened = true")
    (tmp_path / "leave.md").write_text("Everybody has thirty days of leave.")
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.4 ends here")
    await page.get_by_label("Add files").set_input_files([tmp_path / "leave.md", tmp_path / "broken.pdf"])
    rows = page.get_by_role("table").get_by_role("row")
    leave, broken = (rows.filter(has_text=name) for name in ("leave.md", "broken.pdf"))
    await expect(leave).to_contain_text("Queued")
    await expect(page.get_by_text("0 of 2 files are read")).to_be_visible()
    # A third one is dropped there.
    dropped = await page.evaluate_handle(
        "() => { const given = new DataTransfer(); given.items.add(new File(['Flights.'], '<b>.txt')); return given }"
    )
    await page.get_by_role("region", name="Files").dispatch_event("drop", {"dataTransfer": dropped})
    await expect(rows.filter(has_text="<b>.txt")).to_contain_text("Queued")
    read.set()
    await expect(leave).to_contain_text("Completed")
    await expect(broken).to_contain_text("Failed")
    await expect(broken).to_contain_text("PDF")
    await expect(page.get_by_text("1 failed")).to_be_visible()
    assert await page.evaluate("window.opened"), "it was not loaded anew"
    await page.get_by_label("Status").select_option("Failed")
    await expect(leave).to_have_count(0)
    await page.reload()
    await expect(broken).to_be_visible()
    await broken.get_by_role("button", name="Take out of the store").click()
    await page.get_by_role("dialog").get_by_role("button", name="Take out of the store").click()
    await expect(page.get_by_text("No files in this store")).to_be_visible()


async def test_a_search_shows_the_passage_where_it_stands(console: Console) -> None:
    text = f"{_HANDBOOK}\n\n## Flights\n\nFlights are approved by the treasurer alone.\n\n{_HANDBOOK}"
    store = await _store(console, handbook=text, news="Flights are late.")
    page = await console.open(f"knowledge/{store}")
    await page.get_by_role("link", name="Search").click()
    await page.get_by_label("Question").fill("Who approves flights?")
    await page.get_by_role("button", name="Search").click()
    found = page.get_by_role("main").get_by_role("listitem")
    await expect(found).to_have_count(2)
    await expect(found.first).to_contain_text("Score")
    await expect(page.get_by_text("There is no embedding model")).to_be_visible()
    await page.get_by_label("Filters").fill("year < 2021")
    await page.get_by_role("button", name="Search").click()
    await expect(found).to_have_count(1)
    await page.reload()
    await expect(found).to_have_count(1)
    await page.get_by_role("link", name="Show in the file").click()
    passage = page.locator("li", has_text="Passage that was found")
    await expect(passage).to_contain_text("approved by the treasurer alone")
    await expect(passage).to_be_in_viewport()
    await page.go_back()
    await page.get_by_label("Filters").fill("year ? 2021")
    await page.get_by_role("button", name="Search").click()
    await expect(page.get_by_role("alert")).to_contain_text("year ? 2021")


async def test_a_store_is_changed_and_deleted(console: Console) -> None:
    store = await _store(console, leave="Thirty days.")
    page = await console.open(f"knowledge/{store}")
    await page.get_by_role("button", name="Edit").click()
    await page.get_by_label("Name").fill("Rules")
    await page.get_by_label("Expires after").fill("0")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("expires_after")
    await page.get_by_label("Expires after").fill("7")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("heading", name="Rules")).to_be_visible()
    await expect(page.get_by_text("Expires: in 6 days")).to_be_visible()
    await page.get_by_role("link", name="leave.md").click()
    await page.get_by_role("button", name="Change attributes").click()
    await page.get_by_label("A line each").fill('year = 2026\nnumber = "7"\nteam = sales')
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("team = sales")).to_be_visible()
    [file] = (await console.drsai.extension(Knowledge).list_files(Owner("default", "anonymous"), store)).items
    assert file.attributes == {"year": 2026, "number": "7", "team": "sales"}
    await page.get_by_role("link", name="Store", exact=True).click()
    await page.get_by_role("button", name="Delete").click()
    await page.get_by_role("button", name="Delete store").click()
    await expect(page.get_by_text("No stores yet")).to_be_visible()


async def test_a_viewer_reads_and_is_offered_no_more(opened: Open) -> None:
    console = await opened(auth="required")
    store = await _store(console, "ann", leave="Thirty days.")
    page = await console.sign_in(f"knowledge/{store}", "ann", "viewer")
    await expect(page.get_by_role("link", name="leave.md")).to_be_visible()
    for name in ("Add files", "Edit", "Delete", "Take out of the store"):
        await expect(page.get_by_role("button", name=name)).to_have_count(0)
    await page.get_by_role("link", name="Knowledge").click()
    await expect(page.get_by_role("link", name="handbook")).to_be_visible()
    await expect(page.get_by_role("button", name="New store")).to_have_count(0)
    await console.open("knowledge/vs_of_somebody_else")
    await expect(page.get_by_role("alert")).to_contain_text("vs_of_somebody_else")


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_its_views_have_no_violation(opened: Open, theme: str) -> None:
    console = await opened(context={"color_scheme": theme})
    store = await _store(console, leave=f"{_HOSTILE} thirty days")
    [file] = (await console.drsai.extension(Knowledge).list_files(Owner("default", "anonymous"), store)).items
    at = f"knowledge/{store}"
    knowledge = console.drsai.extension(Knowledge)
    found = await knowledge.search(Owner("default", "anonymous"), [store], Question(queries=["thirty"]))
    for path, sign in (
        ("knowledge", "handbook"),
        (at, "leave.md"),
        (f"{at}/search?q=thirty", "Score"),
        (f"{at}/files/{file.file_id}?place={found.passages[0].place}", "Passage that was found"),
    ):
        page = await console.open(path)
        await expect(page.get_by_role("main").get_by_text(sign).first).to_be_visible()
        await console.is_accessible()
    assert await page.title() != "1"


async def test_attributes_are_stored_as_they_were_and_a_line_that_is_none_is_refused(console: Console) -> None:
    knowledge, owner = console.drsai.extension(Knowledge), Owner("default", "anonymous")
    store = await _store(console, leave="Thirty days.")
    [file] = (await knowledge.list_files(owner, store)).items
    given: dict[str, Any] = {"note": "two\nlines", "indent": "  x ", "year": 2026}
    await knowledge.set_attributes(owner, store, file.file_id, given)
    page = await console.open(f"knowledge/{store}/files/{file.file_id}")
    await page.get_by_role("button", name="Change attributes").click()
    field = page.get_by_role("dialog").get_by_role("textbox")
    before = await field.input_value()
    await field.fill(f"{before}\nteam sales")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("team sales")
    await field.fill(before)
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    [file] = (await knowledge.list_files(owner, store)).items
    assert file.attributes == given


async def test_files_that_are_dropped_during_an_upload_are_counted_with_it(console: Console, tmp_path: Path) -> None:
    store = await _store(console)
    page = await console.open(f"knowledge/{store}")
    goes_on = asyncio.Event()

    async def hold(route: Route) -> None:
        await goes_on.wait()
        await route.continue_()

    await page.route("**/v1/files", hold)
    for number in range(2):
        (tmp_path / f"{number}.md").write_text(f"Text {number}.")
        await page.get_by_label("Add files").set_input_files(tmp_path / f"{number}.md")
    await expect(page.get_by_text("0 of 2 files are uploaded")).to_be_visible()
    goes_on.set()
    await expect(page.get_by_text("Drop files here")).to_be_visible()
    await expect(page.get_by_role("table").get_by_role("row")).to_have_count(3)
