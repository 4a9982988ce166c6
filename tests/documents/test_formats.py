"""Text formats keep their structure; encodings are told."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from drsai_backend.documents import Block, ChunkedDocument, Reader, extract
from drsai_backend.errors import DocumentUnreadable

ENGLISH = "The café opened in März; “naïve” visitors paid 5 €."
SIMPLIFIED = "员工每年享有三十天年假。请在系统中提前两周提交申请，并由部门经理批准。"  # noqa: RUF001 - Chinese
TRADITIONAL = "員工每年享有三十天年假。請在系統中提前兩週提交申請，並由部門經理批准。"  # noqa: RUF001 - Chinese
JAPANESE = "従業員は年に三十日の休暇があります。システムで申請してください。"
KOREAN = "직원은 매년 삼십 일의 휴가가 있습니다. 시스템에서 신청하십시오."


def blocks(name: str, content: str | bytes) -> list[tuple[str, str]]:
    """Kind and text of each block."""
    data = content.encode() if isinstance(content, str) else content
    return [(block.kind, block.text) for block in extract(name, data).blocks]


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        *((text, "utf-8") for text in (ENGLISH, SIMPLIFIED, TRADITIONAL)),
        *((SIMPLIFIED, encoding) for encoding in ("utf-8-sig", "utf-16", "utf-32", "gbk", "gb18030")),
        *((f"Leave: {SIMPLIFIED}", encoding) for encoding in ("utf-16-be", "utf-16-le", "gb2312")),
        (TRADITIONAL, "big5"),
        (JAPANESE, "shift_jis"),
        (KOREAN, "euc_kr"),
        (ENGLISH, "cp1252"),
        ("Отпуск составляет тридцать дней в год.", "cp1251"),
        (ENGLISH, "utf-16-le"),
    ],
)
def test_encodings_are_told(text: str, encoding: str) -> None:
    assert blocks("a.txt", text.encode(encoding)) == [("paragraph", text)]


def test_a_few_broken_bytes_do_not_make_a_text_something_else() -> None:
    [(_, read)] = blocks("a.txt", (SIMPLIFIED * 20).encode()[:-1])
    assert read.startswith(SIMPLIFIED * 19)


def test_a_text_that_says_how_a_pdf_begins_is_none() -> None:
    assert blocks("a.md", "A PDF begins with `%PDF-1.7`.") == [("paragraph", "A PDF begins with `%PDF-1.7`.")]


def test_text_has_paragraphs_without_control_characters() -> None:
    assert blocks("notes", f"one\r\ntwo\r\n\r\n \r\nthree\x07\f four\x00{' and more' * 20}") == [
        ("paragraph", "one\ntwo"),
        ("paragraph", f"three\n four{' and more' * 20}"),
    ]


def test_markdown_keeps_its_structure() -> None:
    text = """---
title: "The handbook"
---
Top
===

Text *goes*
on.
## Second ##
- one
  more
- two

  still two

1. first

```python
# no heading

x = 1
```
~~~
unclosed ```
"""
    read = extract("a.md", text.encode())
    assert read.metadata == {"title": "The handbook"}
    assert [(block.kind, block.text, block.level) for block in read.blocks] == [
        ("heading", "Top", 1),
        ("paragraph", "Text *goes*\non.", 0),
        ("heading", "Second", 2),
        ("list", "- one\n  more\n- two\n\n  still two\n\n1. first", 0),
        ("code", "```python\n# no heading\n\nx = 1\n```", 0),
        ("code", "~~~\nunclosed ```", 0),
    ]
    assert blocks("a.md", "before\n| a | b |\n|---|---|\n| 1 | 2 |\n\nafter") == [
        ("paragraph", "before"),
        ("table", "| a | b |\n|---|---|\n| 1 | 2 |"),
        ("paragraph", "after"),
    ]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("---\n\nbetween\n\n---\nafter", [("paragraph", "---"), ("paragraph", "between"), ("paragraph", "---\nafter")]),
        ("---\n# of us\ntags: [a]\n---\ntext", [("paragraph", "text")]),
        ("a | b\n--- | :---:\n1 | 2\n\nend", [("table", "a | b\n--- | :---:\n1 | 2"), ("paragraph", "end")]),
        ("why\na|b\n-|-\n1|2", [("paragraph", "why"), ("table", "a|b\n-|-\n1|2")]),
        ("one\ntwo\n===\ntext", [("heading", "one two"), ("paragraph", "text")]),
        ("one\ntwo\n---\ntext", [("paragraph", "one\ntwo\n---\ntext")]),
        ("# C#\n## F# ##\n### #", [("heading", "C#"), ("heading", "F#")]),
        ("```code``` in a line\n# Title", [("paragraph", "```code``` in a line"), ("heading", "Title")]),
    ],
)
def test_markdown_is_read_as_it_is_shown(text: str, read: list[tuple[str, str]]) -> None:
    assert blocks("a.md", text) == read


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("a;b\n1,5;2,5\n3,5;4,5\n", "| a | b |\n| --- | --- |\n| 1,5 | 2,5 |\n| 3,5 | 4,5 |"),
        ("a\tb,c\n1\t2,5\n", "| a | b,c |\n| --- | --- |\n| 1 | 2,5 |"),
        ("Of 2024\na;b\n1,5;2\n", "| Of 2024 |\n| --- |\n| a | b |\n| 1,5 | 2 |"),
        ("sep=|\na|b\n1|2\n", "| a | b |\n| --- | --- |\n| 1 | 2 |"),
        ('a, "b, c", d\n1, "2, 3", 4\n', "| a | b, c | d |\n| --- | --- | --- |\n| 1 | 2, 3 | 4 |"),
        ('a;b\n"x, y\nz, w";1\n', "| a | b |\n| --- | --- |\n| x, y z, w | 1 |"),
        ("name,tags\nA,x;y\nB,z\nC,w\n", "| name | tags |\n| --- | --- |\n| A | x;y |\n| B | z |\n| C | w |"),
    ],
)
def test_what_parts_cells_is_told_by_the_heads(text: str, table: str) -> None:
    """Of numbers with decimal commas, the comma was taken for it."""
    assert blocks("a.csv", text) == [("table", table)]


def test_html_keeps_its_structure() -> None:
    page = """<!DOCTYPE html><html><head><title>The page</title><style>p {color: red}</style></head><body>
    <nav><a href="/">Home</a></nav><h1>Top &amp; more</h1><p>Text <b>goes</b>
    on.<br>Next line.</p>loose text<script>alert("no")</script>
    <ul><li>one<ul><li>deep</li></ul></li><li><p>two</p></ul><ol><li>first<li>second</ol>
    <table><caption>People</caption><tr><th>Name</th><th>Age</th></tr><tr><td>Ada<br>L.</td><td>36</td></tr></table>
    <pre>def f():
    return 1</pre></body></html>"""
    read = extract("page", page.encode())
    assert read.media_type == "text/html"
    assert read.metadata == {"title": "The page"}
    assert [(block.kind, block.text) for block in read.blocks] == [
        ("paragraph", "Home"),
        ("heading", "Top & more"),
        ("paragraph", "Text goes on.\nNext line."),
        ("paragraph", "loose text"),
        ("list", "- one\n  - deep\n- two"),
        ("list", "1. first\n2. second"),
        ("paragraph", "People"),
        ("table", "| Name | Age |\n| --- | --- |\n| Ada L. | 36 |"),
        ("code", "def f():\n    return 1"),
    ]


def test_html_says_its_encoding() -> None:
    page = f'<html><head><meta charset="big5"></head><p>{TRADITIONAL}</p></html>'
    assert blocks("a.html", page.encode("big5")) == [("paragraph", TRADITIONAL)]
    assert blocks("a.html", '<html><meta charset="nonsense"><p>text</html>') == [("paragraph", "text")]


@pytest.mark.parametrize("tag", ["object data=x", "noscript", "template", "svg", "iframe src=x", "svg/", "iframe /"])
def test_html_behind_an_element_without_an_end_is_read(tag: str) -> None:
    """All behind it was left out."""
    end = f"</{tag.split(' ')[0].strip('/')}>"
    more = "" if "object" in tag else f"<{tag.rstrip('/ ')}><p>hidden</p>{end}"
    page = f"<title>T</title>{more}<p>before</p>\n<{tag}><p>within</p>{more}<h1>after</h1>"
    assert blocks("a.html", page) == [("paragraph", "before"), ("paragraph", "within"), ("heading", "after")]


def test_html_whose_title_has_no_end_is_read() -> None:
    assert blocks("a.html", "<title>T<body><p>text")[-1][1].endswith("text")


def test_words_of_cells_and_items_are_neither_parted_nor_joined() -> None:
    page = (
        "<table><tr><td>wo<b>r</b>d H<sub>2</sub>O</td><td>x<p>one</p><p>two</p></td></tr></table>"
        "<ul><li><p>one</p><p>two</p></li><li><div>three</div><div>four</div><ul><li>a<p>b</ul></li></ul>"
        "<select><option>One<option>Two</select><ol start=5><li>five<li>six</ol>"
    )
    assert blocks("a.html", page) == [
        ("table", "| word H2O | x one two |\n| --- | --- |"),
        ("list", "- one\n  two\n- three\n  four\n  - a\n    b"),
        ("paragraph", "One\nTwo"),
        ("list", "5. five\n6. six"),
    ]


def test_cells_stand_in_the_columns_in_which_a_page_shows_them() -> None:
    page = """<table><tr><th rowspan=2>Name<th colspan="2">Days<th>Note</tr><tr><th>2025<th>2026<th></tr>
    <tr><td>Ada<td rowspan="2">30<td>31</tr><tr><td>Bob<td>32<td rowspan=9>n</table>"""
    assert blocks("a.html", page) == [
        ("table", "| Name | Days |  | Note |\n| --- | --- | --- | --- |\n| Name | 2025 | 2026 |  |\n| Ada | 30 | 31 |\n"
                  "| Bob | 30 | 32 | n |")
    ]  # fmt: skip


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_tables_with_separators_are_tables(delimiter: str) -> None:
    rows = [["Name", "What"], ["Ada", '"a, b; c"'], ["Bob", "x | y"]]
    assert blocks("a.csv", "\n".join(delimiter.join(row) for row in rows)) == [
        ("table", "| Name | What |\n| --- | --- |\n| Ada | a, b; c |\n| Bob | x \\| y |")
    ]


def test_json_has_its_members_as_sections() -> None:
    assert blocks("a.json", '{"名": {"first": "Ada"}, "age": 36, "bio": "Long text."}') == [
        ("heading", "名"), ("code", '{\n "first": "Ada"\n}'), ("heading", "age"), ("code", "36"),
        ("heading", "bio"), ("code", "Long text."),
    ]  # fmt: skip
    assert blocks("a.json", '[{"a": 1}, {"a": 2}]') == [("code", '{\n "a": 1\n}'), ("code", '{\n "a": 2\n}')]
    assert blocks("a.jsonl", '{"a": 1}\n\n{"a": 2}\n') == [("code", '{\n "a": 1\n}'), ("code", '{\n "a": 2\n}')]
    cut = extract("a.json", b'{"a": [1, 2')
    assert [block.text for block in cut.blocks] == ['{"a": [1, 2']
    assert "no valid JSON" in cut.notes[0]


def test_a_notebook_is_read_cell_by_cell() -> None:
    """It was JSON: lines within quotes, titles that were no headings, and pictures in base64."""
    picture = {"output_type": "display_data", "data": {"image/png": "iVBORw0KGgo" * 1_000, "text/plain": ["<Figure>"]}}
    outputs = [
        {"output_type": "stream", "text": ["7\n", "8"]},
        picture,
        {"output_type": "error", "evalue": "no x", "traceback": []},
    ]
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "\n", "Some text."]},
        {"cell_type": "code", "source": "# no heading\nprint(7)", "outputs": outputs},
        {"cell_type": "code", "source": [], "outputs": []},
    ]
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4}
    assert blocks("a.ipynb", json.dumps(notebook)) == [
        ("heading", "Title"), ("paragraph", "Some text."), ("code", "# no heading\nprint(7)"), ("code", "7\n8"),
        ("code", "<Figure>"), ("code", "no x"),
    ]  # fmt: skip
    assert blocks("a.json", json.dumps({"cells": cells}))[0] == ("heading", "cells")


def test_code_is_cut_into_its_pieces() -> None:
    code = "import os\n\n\ndef f():\n    x = 1\n\n    return x\n\n\nclass A:\n    pass\n"
    assert blocks("a.py", code) == [
        ("code", "import os"),
        ("code", "def f():\n    x = 1\n\n    return x"),
        ("code", "class A:\n    pass"),
    ]
    assert extract("Makefile", b"all:\n\techo", "text/x-code").blocks == (Block("code", "all:\n\techo"),)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.html", b"<div>" * 500_000 + b"text"),
        ("a.html", b"<ul><li>" * 20_000 + b"text"),
        ("a.html", b"<table><tr><td>" * 50_000 + b"text"),
        ("a.html", b"<svg" * 200_000 + b">text"),
        ("a.html", b"<svg>" * 200_000 + b"text"),
        ("a.html", b"<table>" + b"<td colspan=1000 rowspan=1000>a<tr>" * 150),
        ("a.json", b"[" * 1_000_000),
        ("a.json", b"[" * 900 + b"1" + b"]" * 900),
        ("a.csv", b'"' + b"a," * 500_000),
        ("a.csv", b",\n" * 500_000 + b"a" + b"," * 500_000),
        ("a.md", b"#" * 1_000_000),
        ("a.md", b"- " * 500_000),
        ("a.md", b"`" * 1_000_000 + b" `"),
        ("a.md", b"# a" + b" " * 1_000_000 + b"b\na|b\n-|-" + b" " * 1_000_000 + b"x"),
        ("a.txt", b"\n" * 3_000_000 + b"a"),
        ("a.py", b"\n \n" * 1_000_000 + b"a"),
    ],
    ids=range(16),
)
async def test_hostile_texts_are_read_or_refused_in_time(name: str, content: bytes) -> None:
    ended = (await asyncio.gather(Reader().chunks(name, content), return_exceptions=True))[0]
    if isinstance(ended, ChunkedDocument):
        assert ended.chunks
    else:
        assert isinstance(ended, DocumentUnreadable)
        assert "within" not in ended.message


@pytest.mark.parametrize("kind", ["list", "lines", "object", "sessions"])
def test_json_of_many_records_is_read_in_a_time_that_grows_with_them(kind: str) -> None:
    """It grew with their square: a minute and more."""
    records = [{"id": number, "text": "Some words."} for number in range(30_000)]
    said = [{"speaker": "Ann", "text": "Hi."}, {"speaker": "Bob", "text": "Hello."}]
    sessions = {
        name: value
        for number in range(10_000)
        for name, value in ((f"session_{number}", said), (f"session_{number}_date_time", "1:56 pm on 8 May, 2023"))
    }
    name, content, count = {
        "list": ("a.json", json.dumps(records), 30_000),
        "lines": ("a.jsonl", "\n".join(map(json.dumps, records)), 30_000),
        "object": ("a.json", json.dumps({f"k_{each['id']}": each for each in records}), 60_000),
        "sessions": ("a.json", json.dumps(sessions), 60_000),
    }[kind]
    started = time.process_time()
    read = blocks(name, content)
    assert time.process_time() - started < 10
    assert len(read) == count
    assert read.count(("heading", "2023-05-08")) == (10_000 if kind == "sessions" else 0)


def test_a_chat_is_read_as_turns() -> None:
    said = [
        {"role": "user", "content": "Where is it?", "created_at": "2025-01-30T14:31:00"},
        {"role": "assistant", "content": [{"type": "text", "text": "In Lisbon."}], "created_at": 1738247460},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "user", "content": "Thanks.", "created_at": "1 pm on 1 February, 2025"},
    ]
    turns = [
        ("heading", "2025-01-30"),
        ("turn", "user: Where is it?"),
        ("turn", "assistant: In Lisbon."),
        ("heading", "2025-02-01"),
        ("turn", "user: Thanks."),
    ]
    assert blocks("chat.json", json.dumps(said)) == turns
    assert blocks("chat.jsonl", "\n".join(map(json.dumps, said))) == turns
    sessions = {"session_1": [{"speaker": "Ann", "text": "Hi."}] * 2, "session_1_date_time": "1:56 pm on 8 May, 2023"}
    assert blocks("chat.json", json.dumps([{"conversation": sessions}])) == [
        ("heading", "session_1"),
        ("heading", "2023-05-08"),
        *[("turn", "Ann: Hi.")] * 2,
        ("heading", "session_1_date_time"),
        ("code", "1:56 pm on 8 May, 2023"),
    ]
    # What only looks like it.
    for other in ([{"role": "admin", "id": 1}, {"role": "guest", "id": 2}], [{"from": 1, "text": "x"}] * 2):
        assert {kind for kind, _ in blocks("list.json", json.dumps(other))} == {"code"}


def test_a_chat_of_lines_is_read_as_turns() -> None:
    turns = [
        ("heading", "2023-05-08"),
        ("turn", "Ann: Hi: there"),
        ("turn", "Bob: Hello\nand more"),
        ("heading", "2023-05-09"),
        ("turn", "Ann: Bye"),
    ]
    for text in (
        "08/05/2023, 13:56 - Ann: Hi: there\n08/05/2023, 13:57 - Bob: Hello\nand more\n09/05/2023, 8:00 - Ann: Bye",
        "[5/8/23, 1:56:01 PM] Ann: Hi: there\n[5/8/23, 1:57:01 PM] Bob: Hello\nand more\n[5/9/23, 8:00:00 AM] Ann: Bye",
        "2023-05-08 13:56 Ann: Hi: there\n2023-05-08 13:57 Bob: Hello\nand more\n2023-05-09 08:00 Ann: Bye",
    ):
        if "[5/8/23" in text:
            text += "\n[5/13/23, 8:00:00 AM] Ann: Again"
            assert blocks("chat.txt", text) == [*turns, ("heading", "2023-05-13"), ("turn", "Ann: Again")]
        else:
            assert blocks("chat.txt", text) == turns
    assert blocks("notes.txt", "2023-05-08 13:56 Ann: Hi\none\ntwo\nthree")[0][0] == "paragraph"
