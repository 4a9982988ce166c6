from __future__ import annotations

from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from drsai_backend.explain import Wrong, did_you_mean, explain, slip_of

NAMES = st.text(st.characters(codec="utf-8"), max_size=100)


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: Literal["dog"]
    name: str = Field(max_length=3)


class House(BaseModel):
    pets: list[Annotated[Cat | Dog, Field(discriminator="kind")]] = []
    rooms: str | list[Cat] = ""
    size: int = 0

    @field_validator("size")
    @classmethod
    def _even(cls, size: int) -> int:
        if size % 2:
            raise ValueError(f"Odd {size}")
        return size


def wrong(data: object, **how: object) -> list[Wrong]:
    with pytest.raises(ValidationError) as caught:
        House.model_validate(data)
    return list(explain(caught.value, data, **how))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("data", "paths"),
    [
        ({"pets": [{"kind": "cat"}]}, [("pets", 0, "lives")]),
        ({"pets": [{"kind": "dog", "name": "Rex", "tail": 1}]}, [("pets", 0, "tail")]),
        ({"pets": [{"kind": "cow"}]}, [("pets", 0, "kind")]),
        ({"pets": [{}]}, [("pets", 0, "kind")]),
        ({"pets": ["cat"]}, [("pets", 0)]),
        ({"rooms": [{"kind": "cat", "lives": "x"}]}, [("rooms",), ("rooms", 0, "lives")]),
        ({"size": 3}, [("size",)]),
        ([], [()]),
    ],
)
def test_places_are_those_of_the_data(data: object, paths: list[object]) -> None:
    assert [each.path for each in wrong(data)] == paths
    assert [each.path for each in wrong(data, within=("body", 0))] == [("body", 0, *path) for path in paths]  # pyright: ignore[reportGeneralTypeIssues]


def test_texts() -> None:
    (odd,) = wrong({"size": 3})
    assert (str(odd), odd.phrase, odd.given) == ("`size`: Odd 3", "Odd 3", 3)
    (long,) = wrong({"pets": [{"kind": "dog", "name": "secret"}]}, within=("x",))
    assert long.place == "x.pets.0.name"
    assert long.values["max_length"] == 3
    assert long.phrase.startswith("string should have at most 3")
    assert "secret" not in repr(long)


def test_without_the_data_paths_are_pydantics() -> None:
    with pytest.raises(ValidationError) as caught:
        House.model_validate({"pets": [{"kind": "cat"}]})
    assert [each.path for each in explain(caught.value)] == [("pets", 0, "cat", "lives")]


@given(st.dictionaries(NAMES, st.none(), min_size=1))
def test_keys_of_a_request_make_no_long_places(data: dict[str, None]) -> None:
    with pytest.raises(ValidationError) as caught:
        Dog.model_validate(data)
    for each in explain(caught.value, data, within=("config",)):
        assert len(each.place) <= 200
        assert each.type == "missing" or each.path[-1] in data


@given(NAMES, st.lists(NAMES))
def test_what_was_meant_is_known(word: str, known: list[str]) -> None:
    meant = did_you_mean(word, known)
    assert meant == "" or meant in {f"; did you mean {each!r}?" for each in known}
    if word and len(word) <= 64:
        assert did_you_mean(word, [*known, word]) == f"; did you mean {word!r}?"


def test_a_slip_of_the_pen() -> None:
    assert did_you_mean("promt", iter(["prompt", "parts"])) == "; did you mean 'prompt'?"
    assert did_you_mean("zzz", ["prompt"]) == ""
    assert did_you_mean("x" * 64 + "y" * 10_000, ["x" * 64]) == f"; did you mean {'x' * 64!r}?"
    assert did_you_mean("last", [*(f"{each:05}" for each in range(1000)), "last"]) == ""


@pytest.mark.parametrize("word", ["threadid", "threadId", "thread-id", "Thread_ID", "thred_id", "thread_idd"])
def test_what_a_name_is_a_slip_of(word: str) -> None:
    assert slip_of(word, ["on_busy", "thread_id"]) == "thread_id"


@pytest.mark.parametrize(
    "word", ["thread_id", "thread", "id", "parent_thread_id", "user_id", "show", "on_bus", "", "x" * 999]
)
def test_names_of_their_own_are_no_slips(word: str) -> None:
    assert slip_of(word, ["on_busy", "shown", "thread_id"]) is None


@given(NAMES, st.lists(NAMES, max_size=5))
def test_a_known_name_is_no_slip_and_another_one_is_of_what_is_known(word: str, known: list[str]) -> None:
    assert slip_of(word, [*known, word]) is None
    assert slip_of(word, known) in (None, *known)
