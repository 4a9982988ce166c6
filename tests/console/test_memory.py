"""Memory in the console: what is known of oneself, changed, followed back, and forgotten."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import expect

from drsai_backend.datamodel.owner import Owner
from drsai_backend.features.memory.base import NewMemory, Source
from drsai_backend.features.memory.extension import Memory
from tests.console.conftest import Console, Open

_ANN = Owner("default", "ann")
_HOSTILE = '<img src=x onerror="document.title=1"> [a](javascript:alert(1)) \u202egnp.exe ' + "x" * 500


async def _remember(console: Console, *texts: str) -> None:
    memory = console.drsai.extension(Memory)
    for text in texts:
        source = Source(thread_id="t", run_id="run_1", seq=0, quote=f"I say: {text}"[:300])
        await memory.add(_ANN, NewMemory(text=text, sources=[source]))


async def test_a_memory_is_added_changed_and_forgotten(opened: Open) -> None:
    console = await opened(auth="required", memory=True)
    page = await console.sign_in("memory", "ann", "user")
    await expect(page.get_by_text("Nothing is remembered")).to_be_visible()
    await page.get_by_role("button", name="Add a memory").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Memory", exact=True).fill("Ann likes tea.")
    await dialog.get_by_label("Importance").fill("2")
    await dialog.get_by_role("button", name="Save").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("importance")
    await dialog.get_by_label("Importance").fill("0.9")
    await dialog.get_by_label("Kind").select_option("Preference")
    await dialog.get_by_role("button", name="Save").click()
    await page.get_by_role("link", name="Ann likes tea.").click()
    await page.get_by_role("button", name="Edit").click()
    await dialog.get_by_label("Memory", exact=True).fill("Ann likes coffee.")
    await dialog.get_by_role("button", name="Save").click()
    versions = page.get_by_role("main").get_by_role("listitem")
    await expect(versions).to_have_count(2)
    await expect(versions.nth(0)).to_contain_text("Ann likes coffee.")
    await expect(versions.nth(1)).to_contain_text("Replaced by a newer version")
    await page.reload()
    await expect(versions.nth(1)).to_contain_text("Ann likes tea.")
    await page.get_by_role("button", name="Forget").click()
    await dialog.get_by_role("button", name="Forget").click()
    await expect(page.get_by_text("Nothing is remembered")).to_be_visible()
    assert not (await console.drsai.extension(Memory).list(_ANN)).items


async def test_memories_are_searched_exported_and_all_forgotten(opened: Open, tmp_path: Path) -> None:
    console = await opened(auth="required", memory=True)
    await _remember(console, "Ann is allergic to peanuts.", "Ann lives in Bonn.", "Ann has a dog.")
    page = await console.sign_in("memory", "ann", "user")
    rows = page.get_by_role("table").get_by_role("link")
    await expect(rows).to_have_count(3)
    await page.get_by_role("searchbox", name="Search").fill("Where does she live? Bonn?")
    await page.get_by_role("search").get_by_role("button", name="Search").click()
    await expect(rows).to_have_text(["Ann lives in Bonn."])
    await page.reload()
    await rows.click()
    await expect(page.get_by_text("I say: Ann lives in Bonn.")).to_be_visible()
    await expect(page.get_by_role("link", name="Run", exact=True)).to_have_attribute("href", "runs/run_1")
    await page.get_by_role("link", name="About me").click()
    learns = page.get_by_label("Learn from what I say")
    await learns.uncheck()
    await page.reload()
    await expect(learns).not_to_be_checked()
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Export").click()
    await (await download.value).save_as(tmp_path / "memories.jsonl")
    assert len((tmp_path / "memories.jsonl").read_bytes().splitlines()) == 3
    await page.get_by_role("button", name="Forget all").click()
    sure = page.get_by_role("dialog").get_by_role("button", name="Forget all")
    await expect(sure).to_be_disabled()
    await page.get_by_label("Type Forget to confirm").fill("Forget")
    await sure.click()
    await expect(page.get_by_text("Nothing is remembered")).to_be_visible()
    await expect(page.get_by_text("3 versions were forgotten")).to_be_visible()


async def test_what_is_shared_is_read_and_changed_by_those_who_may(opened: Open) -> None:
    console = await opened(auth="required", memory=True, memory_shared={"*": "tenant"})
    page = await console.sign_in("memory?shared=1", "ann", "user")
    await expect(page.get_by_text("Nothing is remembered")).to_be_visible()
    await expect(page.get_by_role("button", name="Add a memory")).to_have_count(0)
    await page.get_by_role("button", name="Sign out").click()
    await console.sign_in("memory?shared=1", "olga", "operator")
    await page.get_by_role("button", name="Add a memory").click()
    await page.get_by_role("dialog").get_by_label("Memory", exact=True).fill("The release is on Monday.")
    await page.get_by_role("dialog").get_by_role("button", name="Save").click()
    await expect(page.get_by_role("link", name="The release is on Monday.")).to_be_visible()
    await page.get_by_role("link", name="About me").click()
    await expect(page.get_by_text("Nothing is remembered")).to_be_visible()


async def test_who_may_be_many_people_is_told_so(console: Console) -> None:
    page = await console.open("memory")
    await expect(page.get_by_text("this user may be many people")).to_be_visible()
    await expect(page.get_by_role("button", name="Export")).to_have_count(0)
    await console.is_accessible()


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_its_views_have_no_violation(opened: Open, theme: str) -> None:
    console = await opened(auth="required", memory=True, context={"color_scheme": theme})
    await _remember(console, _HOSTILE)
    page = await console.sign_in("memory", "ann", "user")
    row = page.get_by_role("table").get_by_role("link")
    await expect(row).to_contain_text("<img src=x")
    await console.is_accessible()
    await row.click()
    await expect(page.get_by_role("heading", name="History")).to_be_visible()
    await expect(page.get_by_role("main").get_by_role("link")).to_have_text(["About me", "Run"])
    await console.is_accessible()
    assert await page.title() != "1"


async def test_a_question_that_is_typed_stays_when_something_else_is_chosen(opened: Open) -> None:
    console = await opened(auth="required", memory=True)
    await _remember(console, "Ann lives in Bonn.")
    page = await console.sign_in("memory", "ann", "user")
    question = page.get_by_role("searchbox", name="Search")
    await question.fill("Where does she live?")
    await page.get_by_label("Kind").select_option("fact")
    await expect(page).to_have_url(re.compile("kind=fact"))
    await expect(question).to_have_value("Where does she live?")
    await page.get_by_role("search").get_by_role("button", name="Search").click()
    await expect(page).to_have_url(re.compile("q=Where"))
    # Where the address says something else, the field does.
    await page.get_by_role("link", name="About me").click()
    await expect(question).to_have_value("")


async def test_what_could_not_be_set_is_shown_as_it_was(opened: Open) -> None:
    console = await opened(auth="required", memory=True)
    page = await console.sign_in("memory", "ann", "user")
    learns = page.get_by_label("Learn from what I say")
    await expect(learns).to_be_checked()
    await page.route("**/v1/memories/settings", lambda route: route.fulfill(status=500, json={}))
    await learns.click()
    await expect(page.get_by_role("status").filter(has_text="500")).to_be_visible()
    await expect(learns).to_be_checked()
