"""Texts are taken apart into tokens, whatever their language."""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drsai_backend.search import tokens as tested
from drsai_backend.search.tokens import asked, terms, tokens


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The cats were running", ["the", "cat", "were", "run"]),
        ("RUNNING Runs", ["run", "run"]),
        ("机器学习", ["机器", "器学", "学习"]),
        ("学", ["学"]),
        ("用Python写的代码", ["用", "python", "写的", "的代", "代码"]),
        ("ひらがな 한국어", ["ひら", "らが", "がな", "한국", "국어"]),
        ("parseHTTPResponse", ["parsehttpresponse", "pars", "http", "respons"]),
        ("max_retry_count", ["max_retry_count", "max", "retri", "count"]),
        ("utf8", ["utf8", "utf", "8"]),
        ("1,000.50 and 3.14", ["1000.50", "and", "3.14"]),
        ("2026-11-28", ["2026", "11", "28"]),
        ("Ann's book, Ann\u2019s", ["ann", "book", "ann"]),
        ("\uff46\uff55ll w\uff49dth \uff11\uff12", ["full", "width", "12"]),
        ("ﬁne café", ["fine", "café"]),
        ("_ — !?", []),
        ("", []),
    ],
)
def test_tokens_of_a_text(text: str, found: list[str]) -> None:
    assert [*tokens(text)] == found


def test_a_query_leaves_out_what_every_text_has() -> None:
    assert asked("What is the capital of France?", 10) == sorted(terms("capital France"))
    assert asked("to be or not to be", 10) == sorted(terms("to be or not"))
    assert len(asked(" ".join(map(str, range(1000))), 10)) == 10


def test_a_long_word_is_cut() -> None:
    assert terms("x" * 64) == terms("x" * 5000)


@given(st.text())
def test_any_text_has_tokens_that_find_it(text: str) -> None:
    assert set(asked(text, 1000)) <= set(terms(text))
    assert all(each and not each.isspace() for each in tokens(text))


@given(st.lists(st.sampled_from(["Runs", "runs", "_", " ", "1,5", ".", "\u2019s", "HTTPGet", "学习", "x" * 65, "é"])))
def test_each_token_counts_as_often_as_it_stands_there(parts: list[str]) -> None:
    text = "".join(parts)
    assert terms(text) == Counter(map(tested._digest, tokens(text)))


def test_threads_stem_as_one_alone_does() -> None:
    """Files are read in one, and searches are done in others, at the same time."""
    texts = [" ".join(f"{chr(97 + a)}{chr(97 + b)}{end}" for b in range(26) for end in _ENDS) for a in range(26)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        tested._stemmed.cache_clear()
        with ThreadPoolExecutor(8) as pool:
            found = [*pool.map(lambda text: [*tokens(text)], texts)]
    finally:
        sys.setswitchinterval(before)
    tested._stemmed.cache_clear()
    assert found == [[*tokens(text)] for text in texts]


_ENDS = ("ations", "ingly", "iveness", "ousness", "izers", "ally", "encies", "ements")
