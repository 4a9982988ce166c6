"""The site of the documents is made here: `make docs`.

The pages of `docs/` come along as they are, and so do the readmes and what lies beside them, under names of their own.
Two pages are made: the Python interface and the routes. The README's last chapter is the navigation. Zensical builds
the site of all that, strictly: a link that leads nowhere ends it.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build/documents"
BESIDE = {
    "README.md": "index.md",
    "README.zh-CN.md": "zh.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
    "UPGRADING.md": "upgrading.md",
    "examples/README.md": "examples.md",
    "tests/README.md": "tests.md",
}
"""Pages outside of `docs/`, and what they are called in the site."""
CHAPTER = "## Where to go next\n"
PICTURES = ("demo.svg", "console.png")
SHIM = "https://unpkg.com/iframe-worker/shim"
"""What Zensical's pages load to search where they are opened as files. It comes along instead."""
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s]*)(#[^)]*)?\)")


def sources() -> dict[str, str]:
    """Return each page's place in the repository, and its place in the site."""
    docs = {f"docs/{name}": name for path in (ROOT / "docs").rglob("*.md") for name in [_inside(path, ROOT / "docs")]}
    return docs | BESIDE


def main() -> None:
    """Put the pages together, and build the site in `build/documents/site`."""
    write(SITE)
    zensical = Path(sys.executable).with_name("zensical")
    built = subprocess.run([zensical, "build", "--clean", "--strict"], cwd=SITE, check=False)
    if built.returncode:
        sys.exit(f"the site is not built; its pages are in {SITE / 'pages'}")
    for page in (SITE / "site").rglob("*.html"):
        text = page.read_text("utf-8")
        shim = os.path.relpath(SITE / "site/iframe-worker.js", page.parent)
        page.write_text(text.replace(SHIM, shim), "utf-8")
    sys.stdout.write(f"{SITE / 'site/index.html'}\n")


def write(site: Path) -> None:
    """Write the configuration and all pages into a folder."""
    shutil.rmtree(site, ignore_errors=True)
    pages = sources()
    for source, page in pages.items():
        _write(site / "pages" / page, _page(source, pages))
    made = {name: runpy.run_path(str(ROOT / f"docs/make_{name}.py"))[name]() for name in ("reference", "routes")}
    for name, text in made.items():
        _write(site / "pages" / f"{name}.md", _titled(text))
    for name in (*PICTURES, "iframe-worker.js"):
        shutil.copy(ROOT / "docs" / name, site / "pages")
    config = (ROOT / "docs/zensical.toml").read_text("utf-8")
    _write(site / "zensical.toml", config.replace("nav = []", f"nav = {_toml(navigation(pages))}"))


def navigation(pages: dict[str, str]) -> list[Any]:
    """Return the groups of the README's last chapter with their pages; those of agents and teams belong to *Use*."""
    chapter = (ROOT / "README.md").read_text("utf-8").split(CHAPTER)[1]
    groups: dict[str, list[Any]] = {}
    for line in chapter.splitlines():
        if re.match(r"\w", line):
            groups[line] = []
        elif groups:
            named = [pages[link] for _, link, _ in _LINK.findall(line) if link in pages]
            list(groups.values())[-1].extend(_with_parts(page, pages) for page in named)
    groups["Start"][:0] = [{"Overview": "index.md"}, {"中文": "zh.md"}]
    groups["Use"].append({"Agents and teams": groups.pop("Agents and teams")})
    groups["Reference"][:0] = ["routes.md", "reference.md"]
    return [{name: entries} for name, entries in groups.items()]


def _with_parts(page: str, pages: dict[str, str]) -> Any:
    """A folder's index stands before the pages that it lists."""
    folder, _, name = page.rpartition("/")
    if name != "index.md" or not folder:
        return page
    text = (ROOT / "docs" / page).read_text("utf-8")
    parts = [f"{folder}/{link}" for _, link, _ in _LINK.findall(text) if f"docs/{folder}/{link}" in pages]
    return {folder.capitalize(): [page, *parts]}


def _page(source: str, pages: dict[str, str]) -> str:
    """A page as the site has it. A link to a file that is no page becomes the file's name."""

    def link(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        if not target or ":" in target:
            return found[0]
        path = os.path.normpath(Path(source).parent / target)
        if path in pages:
            shown = _title(path) if text.rstrip("/") in (path, str(Path(path).parent)) else text
            start = Path(pages[source]).parent
            return f"[{shown}]({os.path.relpath(pages[path], start)}{anchor})"
        return text if text.strip("`") == path else f"{text} (`{path}`)"

    parts = re.split(r"(^```.*?^```$)", (ROOT / source).read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    text = "".join(_titled(part) if part.startswith("```") else _LINK.sub(link, part) for part in parts)
    for name in PICTURES:
        text = text.replace(f"(docs/{name})", f"({name})")
    return text


def _titled(fenced: str) -> str:
    """The name of a block's file is its title."""
    return re.sub(r"^```(\w+) file=(\S+).*$", r'```\1 title="\2"', fenced, flags=re.MULTILINE)


def _title(source: str) -> str:
    return (ROOT / source).read_text("utf-8").splitlines()[0].removeprefix("# ")


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def _inside(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
