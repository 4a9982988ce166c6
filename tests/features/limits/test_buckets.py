"""Buckets: whatever is taken and whenever, no more passes than the limit and what has flowed in since."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drsai_backend.errors import TooManyRequests
from drsai_backend.features.limits import buckets
from drsai_backend.features.limits.base import MINUTE, Bound, Who, duration
from drsai_backend.features.limits.buckets import Addresses, Buckets, refuse

_steps = st.lists(st.tuples(st.integers(0, 90 * 10**9), st.integers(1, 50)), max_size=60)


@given(most=st.integers(1, 5000), steps=_steps)
def test_no_more_passes_than_there_is(most: int, steps: list[tuple[int, int]]) -> None:
    """By the arithmetic that the database does: in any span of time what the bucket holds, and what flows in."""
    bound, tat, now = Bound(Who("all"), "tokens", most), 0, 10**18
    passed: list[tuple[int, int]] = []
    for pause, many in steps:
        now += pause
        many = min(many, most)
        ahead, refused = max(0, tat - now) + bound.cost(many), None
        try:
            refuse(bound, ahead)
        except TooManyRequests as error:
            refused = error
        if refused is not None:
            # It passes then.
            assert max(0, tat - now - int(refused.after * 1e9) - 1000) + bound.cost(many) <= MINUTE
            continue
        tat = now + ahead
        passed.append((now, many))
        assert bound.left(ahead) >= 0
    for place, (begin, _) in enumerate(passed):
        total = 0
        for at, many in passed[place:]:
            total += many
            assert total <= most + (at - begin) / bound.unit + 1


@pytest.mark.parametrize("most", [1, 3, 7, 60, 1000, 999_999, 10**9])
def test_a_full_bucket_holds_its_limit(most: int) -> None:
    bound = Bound(Who("all"), "tokens", most)
    refuse(bound, bound.cost(most))
    assert bound.cost(most) == bound.cost(most + 5)
    assert bound.left(0) >= most
    assert bound.left(bound.cost(1)) >= most - 1
    with pytest.raises(TooManyRequests):
        refuse(bound, bound.cost(most) + (MINUTE - bound.cost(most)) + 1)


def test_names_cannot_be_mixed_up() -> None:
    pairs = [("a/b", "c"), ("a", "b/c"), ("a%2Fb", "c"), ("ä", "\u2603")]
    assert len({Bound(Who("user", *pair), "requests", 1).subject for pair in pairs}) == len(pairs)


@pytest.mark.parametrize(
    ("nanoseconds", "text"), [(-5, "0ms"), (120_000_000, "120ms"), (1_500_000_000, "1.5s"), (62_000_000_000, "1m2s")]
)
def test_times_are_told_as_openai_does(nanoseconds: int, text: str) -> None:
    assert duration(nanoseconds) == text


class Clock:
    """Stands for the module `time`."""

    def __init__(self) -> None:
        self.now = 10**18

    def monotonic_ns(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(buckets, "time", clock)
    return clock


def test_what_was_told_is_believed_for_a_second(clock: Clock) -> None:
    known, bound = Buckets(), Bound(Who("all"), "requests", 60)
    taken = [(bound, bound.subject, bound.cost(1))]
    known.refuse(taken)
    known.tell(bound.subject, MINUTE)
    with pytest.raises(TooManyRequests) as refused:
        known.refuse(taken)
    assert refused.value.after == 1
    clock.now += 10**9
    known.refuse(taken)
    assert known.ahead(bound) == MINUTE - 10**9


def test_what_was_reserved_is_given_back_for_the_first_calls_alone(clock: Clock) -> None:
    known = Buckets()
    known.reserve("run", 7)
    assert [known.reserved("run", 1, 1) for _ in range(2)] == [7, 7]
    assert [known.reserved("run", *calls) for calls in ((1, 2), (2, 1))] == [0, 0]
    known.reserve("", 1)
    assert [known.reserved(None, 0, 0) for _ in range(2)] == [1, 0]
    known.reserve("run", 7)
    clock.now += MINUTE
    assert known.reserved("run", 1, 1) == 0


def passes(addresses: Addresses, address: str) -> bool:
    headers: list[Any] = []
    try:
        addresses.take(address, headers)
    except TooManyRequests:
        return False
    finally:
        assert dict(headers)[b"x-ratelimit-limit"] == b"2"
    return True


def test_addresses_have_buckets_of_their_own(clock: Clock) -> None:
    addresses = Addresses(2)
    assert [passes(addresses, "192.0.2.1") for _ in range(3)] == [True, True, False]
    assert passes(addresses, "192.0.2.2")
    clock.now += 30 * 10**9
    assert [passes(addresses, "192.0.2.1") for _ in range(2)] == [True, False]
    # One client has a whole network of version 6, and may write an address of it in many ways.
    six = ("2001:db8::1", "2001:DB8:0:0:ffff::2", "2001:db8::1%eth0")
    assert [passes(addresses, each) for each in six] == [True, True, False]
    assert passes(addresses, "2001:db8:0:1::1")
    assert passes(addresses, "testclient")
