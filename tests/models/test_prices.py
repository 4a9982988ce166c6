"""What a call costs is said by a dated list of prices; where it says nothing of a model, the cost is unknown."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from drsai_backend.errors import ConfigurationError
from drsai_backend.models.prices import Prices, load_prices

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def prices(*each: dict[str, Any]) -> Prices:
    return Prices.model_validate({"prices": each})


def cost(of: Prices, at: datetime = NOW, **call: Any) -> int | None:
    return of.cost_of({"prompt_tokens": 1_000_000, "completion_tokens": 0, "model": "m", **call}, at)


def test_tokens_are_priced_by_their_kind() -> None:
    call = {"prompt_tokens": 1000, "cached_tokens": 300, "cache_write_tokens": 200, "completion_tokens": 100}
    whole = {"model": "m", "prompt": 2, "cached": 0.5, "cache_write": 3, "completion": 8}
    assert cost(prices(whole), **call) == (500 * 2 + 300 * 0.5 + 200 * 3 + 100 * 8) * 100
    assert cost(prices({**whole, "cached_apart": True}), **call) == (1000 * 2 + 300 * 0.5 + 200 * 3 + 100 * 8) * 100
    assert cost(prices({"model": "m", "prompt": 2}), **call) == 1000 * 2 * 100


def test_an_unknown_price_is_none_and_no_zero() -> None:
    known = prices({"model": "m", "prompt": 0})
    assert cost(known) == 0
    assert cost(known, model="other") is None
    assert cost(known, model="other", cached=True) == 0  # out of the response cache


def test_the_nearest_price_wins() -> None:
    of = prices(
        {"model": "*", "prompt": 1},
        {"model": "gpt-*", "prompt": 2},
        {"model": "gpt-5", "prompt": 3},
        {"model": "*", "profile": "local", "prompt": 0},
        {"model": "dated", "from": "2026-01-01", "prompt": 5},
        {"model": "dated", "from": "2026-06-01", "prompt": 6},
    )
    unit = 100_000_000
    assert cost(of, model="x") == unit
    assert cost(of, model="gpt-4") == 2 * unit
    assert cost(of, model="gpt-5") == 3 * unit
    assert cost(of, model="gpt-5", profile="local") == 0
    for day, wanted in ((datetime(2025, 12, 31, 23, tzinfo=UTC), 1), (NOW, 5), (datetime(2026, 6, 1, tzinfo=UTC), 6)):
        assert cost(of, day, model="dated") == wanted * unit


def test_an_override_wins_over_the_same_models_whenever_their_price_began(tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(
        "prices: [{model: m, from: 2026-01-01, prompt: 5}, {model: m, from: 2026-06-01, prompt: 6},"
        " {model: 'm*', prompt: 1}]"
    )
    june, unit = datetime(2026, 6, 1, tzinfo=UTC), 100_000_000
    for own, now, then in (
        ([{"model": "m", "prompt": 2}], 2, 2),
        ([{"model": "m", "from": "2026-05-01", "prompt": 2}], 5, 2),
        ([{"model": "m", "prompt": 2}, {"model": "m", "from": "2026-05-01", "prompt": 3}], 2, 3),
        ([{"model": "m*", "prompt": 2}], 5, 6),
    ):
        of = load_prices(path, own)
        assert (cost(of), cost(of, june)) == (now * unit, then * unit), own


def test_the_list_that_comes_along() -> None:
    of = load_prices(None)
    for model, prompt in {
        "gpt-4o-mini": 0.15,
        "gpt-4o-mini-2024-07-18": 0.15,
        "gpt-4o-2024-08-06": 2.5,
        "gpt-5-mini": 0.25,
        "gpt-5": 1.25,
        "claude-sonnet-4-20250514": 3,
    }.items():
        assert cost(of, model=model) == round(prompt * 100_000_000), model
    assert cost(of, model="gpt-4o-realtime-preview") is None
    assert cost(of, model="my-own") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prices: [{model: m}]", r"prices\.0\.prompt"),
        ("prices: [{model: m, prompt: -1}]", r"prices\.0\.prompt"),
        ("prices: [{model: m, prompt: .nan}]", r"prices\.0\.prompt"),
        ("prices: [{model: m, prompt: 1, coffee: 2}]", "coffee"),
        ("{prices: [], currency: euro}", "currency"),
        ("- 1", "the file"),
        ("a: [", "is no YAML"),
    ],
)
def test_a_list_that_cannot_be_used(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=f"DRSAI_PRICES: .*{said}"):
        load_prices(path)


def test_a_list_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"DRSAI_PRICES: .*cannot be read"):
        load_prices(tmp_path / "none.yaml")
