"""How a verdict is read from what a model has said."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drsai_backend.strategies.reflexion.verdict import MOST, NoVerdict, Verdict, read_verdict

GOOD: list[tuple[str, Any]] = [
    ('{"score": 0.5, "reasons": "a", "reflection": "b"}', Verdict(0.5, "a", "b")),
    ('{"score": 1}', Verdict(1)),
    ('{"score": "0.85"}', Verdict(0.85)),
    ('{"score": "85 %"}', Verdict(0.85)),
    ('{"score": "8/10"}', Verdict(0.8)),
    ('{"score": "8 out of 10"}', Verdict(0.8)),
    ('{"rating": 0}', Verdict(0)),
    ('Here: ```json\n{"score": 0.1, "reason": "x"}\n```', Verdict(0.1, "x")),
    ('{"a": {}} and {"score": 0.3}', Verdict(0.3)),
    ('{"score": 5} or rather {"score": 0.5}', Verdict(0.5)),
    ('{"score": 0.2, "reasons": ["a", "b"], "reflection": null}', Verdict(0.2, "- a\n- b")),
    ("The score is 0.4.", Verdict(0.4, "The score is 0.4.")),
    ("**Score:** 7/10", Verdict(0.7, "**Score:** 7/10")),
]


@pytest.mark.parametrize(("text", "verdict"), GOOD, ids=range(len(GOOD)))
def test_verdicts(text: str, verdict: Verdict) -> None:
    assert read_verdict(text) == verdict


SPOKEN = [
    ("Overall score (0-1): 0.8", 0.8),
    ("Overall score (from 0 to 1): **0.8**", 0.8),
    ("overall_score = .8", 0.8),
    ("Score: 0.8 out of 1", 0.8),
    ("Rating: 8 out of 10.", 0.8),
    ("Score: 8/10, it rhymes.", 0.8),
    ("My score is 80 %. It rhymes.", 0.8),
    ("Score: 0.8 because it rhymes", 0.8),
    ("Score: 0.8 - it rhymes", 0.8),
    ("| Score | 0.8 |", 0.8),
    ("<score>0.8</score>", 0.8),
    ("Style score: 0.8\nScore: 80%", 0.8),
    ("得分：0.8", 0.8),  # noqa: RUF001
    ("总分（0-1）：０．８。", 0.8),  # noqa: RUF001
    ("**总分**：8/10", 0.8),  # noqa: RUF001
    ("得分为80％，押韵。", 0.8),  # noqa: RUF001
    ("评分：8分，满分10分", 0.8),  # noqa: RUF001
    ('{"score": "８/１０"}', 0.8),  # noqa: RUF001
    ('{"score": "8分（满分10分）"}', 0.8),  # noqa: RUF001
    ('{"score": "0.8 out of 1.0"}', 0.8),
]
UNCLEAR = [
    *("Score (0-10): 8", "Score (0-10): 0.8", "Score: 0.7-0.8", "Score: 0.7 - 0.8", "Score: 0.7 or 0.8", "Score: 0,8"),
    *("Score: 0.5\nOverall score: 0.8", "Score: not 0.8", "Score: -0.8", "总分：80分", "得分：0.7到0.8", "Scores: 1"),  # noqa: RUF001
    *("Score: 0.8 (out of 10)", "Score: 1,000", "得分: 0.8万", '{"score": "0.7 to 0.8"}', '{"score": "0,8"}'),
]


@pytest.mark.parametrize(("text", "score"), SPOKEN, ids=range(len(SPOKEN)))
def test_scores_as_they_are_written(text: str, score: float) -> None:
    assert read_verdict(text).score == pytest.approx(score)


@pytest.mark.parametrize("text", UNCLEAR, ids=range(len(UNCLEAR)))
def test_an_unclear_score_is_none(text: str) -> None:
    with pytest.raises(NoVerdict):
        read_verdict(text)


BAD = [
    *("", "No.", "{", "[]", "null", '{"score": 2}', '{"score": -0.1}', '{"score": true}', '{"score": null}'),
    *('{"score": NaN}', '{"score": Infinity}', '{"score": 1e400}', '{"score": "high"}', '{"score": [1]}'),
    *('{"score": 1' + "0" * 5_000 + "}", '{"score": "9/0"}', "Score: 11", "score 1.2.3"),
    *("{" * 100_000, "[" * 100_000, '{"a":' * 30_000, "score " * 100_000, "Score: " + "9" * 100_000),
]


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_what_is_no_verdict(text: str) -> None:
    with pytest.raises(NoVerdict):
        read_verdict(text)


def test_reasons_are_bounded() -> None:
    said = read_verdict(json.dumps({"score": 1, "reasons": "x" * 9_000, "reflection": "y" * 9_000}))
    assert (len(said.reasons), len(said.reflection)) == (MOST, MOST)
