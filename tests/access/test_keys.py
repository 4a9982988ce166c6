"""What a key looks like: mistakes are told, and nothing else is taken for a key."""

from __future__ import annotations

import re
from hashlib import sha256
from itertools import combinations
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drsai_backend.access.keys import KEY_PATTERN, PREFIX, Malformed, encode_key, make_key, make_key_id, parse_key

SECRETS = st.integers(0, 2**256 - 1)
KEYS = st.builds(encode_key, SECRETS)
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
SECRET = range(len(PREFIX), len(PREFIX) + 43)
CHECKSUM = range(SECRET.stop, SECRET.stop + 6)


def value(digits: str) -> int:
    number = 0
    for digit in digits:
        number = number * 62 + DIGITS.index(digit)
    return number


def swapped(text: str, one: int, other: int) -> str:
    characters = list(text)
    characters[one], characters[other] = characters[other], characters[one]
    return "".join(characters)


@given(SECRETS)
def test_a_key_is_its_secret_and_a_checksum_of_all_before_it(secret: int) -> None:
    key = encode_key(secret)
    assert key.startswith(PREFIX)
    assert len(key) == CHECKSUM.stop
    assert value(key[SECRET.start : SECRET.stop]) == secret
    assert value(key[CHECKSUM.start :]) == crc32(key[: CHECKSUM.start].encode())
    assert parse_key(key) == sha256(key.encode()).hexdigest()


@pytest.mark.parametrize(
    ("secret", "key"),
    [
        (0, "sk-drsai-" + "0" * 43 + "47G3LN"),
        (2**256 - 1, "sk-drsai-yhjskwdA6OZ1AL1YmHWZWm8LLG7HjnuCA2j5rOw8Xp11Na2jx"),
    ],
)
def test_keys_of_this_version_stay_keys(secret: int, key: str) -> None:
    assert encode_key(secret) == key


@given(SECRETS, SECRETS)
def test_two_secrets_are_two_keys(one: int, other: int) -> None:
    assert (parse_key(encode_key(one)) == parse_key(encode_key(other))) is (one == other)


@settings(max_examples=10)
@given(KEYS, st.characters(exclude_characters=DIGITS))
def test_every_change_of_one_character_is_told(key: str, odd: str) -> None:
    for place, right in enumerate(key):
        for wrong in DIGITS + odd:
            if wrong != right:
                assert parse_key(key[:place] + wrong + key[place + 1 :]) is Malformed.MISTYPED


@settings(max_examples=30)
@given(KEYS)
def test_every_swap_is_told(key: str) -> None:
    """Of two characters of one part, or of the prefix and another part."""
    pairs = [*combinations(range(SECRET.stop), 2), *combinations(CHECKSUM, 2)]
    pairs += [(place, other) for place in range(len(PREFIX)) for other in CHECKSUM]
    for one, other in pairs:
        if key[one] != key[other]:
            assert parse_key(swapped(key, one, other)) is Malformed.MISTYPED


@given(KEYS, st.data())
def test_what_is_missing_or_too_much_is_told(key: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(len(PREFIX), len(key) - 1))
    assert parse_key(key[:cut]) is Malformed.MISTYPED
    more = data.draw(st.text(min_size=1))
    assert parse_key(key + more) is Malformed.MISTYPED
    place = data.draw(st.integers(SECRET.start, len(key) - 1))
    assert parse_key(key[:place] + key[place + 1 :]) is Malformed.MISTYPED
    assert not isinstance(parse_key(key.swapcase()), str)


@given(st.text())
def test_no_other_text_is_a_key(text: str) -> None:
    assert parse_key(text) in (Malformed.FOREIGN, Malformed.MISTYPED)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sk-",
        "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMN",
        "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHI",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJl",
        "not needed",
    ],
)
def test_what_others_give_out_is_foreign(text: str) -> None:
    assert parse_key(text) is Malformed.FOREIGN


@given(st.lists(KEYS, max_size=3), st.text("abcXYZ019 =\"'\n:,", min_size=1))
def test_a_scanner_finds_keys_wherever_they_stand(keys: list[str], between: str) -> None:
    text = between + "".join(key + " " + between for key in keys)
    assert re.findall(KEY_PATTERN, text) == keys


def test_new_keys_differ_and_are_keys() -> None:
    keys = {make_key() for _ in range(1000)}
    assert len({parse_key(key) for key in keys} - set(Malformed)) == 1000
    ids = {make_key_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(re.fullmatch(r"key_[0-9A-Za-z]{14}", each) for each in ids)
