"""Conversations to search in: two people over most of a year, made by a script, the same each time.

Each has some 500 turns in 18 sessions with dates. Subjects return, of both people, with other names and places, so that
who said it and when tells turns apart; answers are short and stand beside their questions; half of what is asked has
other words than what was said. The second half has other people and other subjects, and nothing was chosen by it.
"""

from __future__ import annotations

import random
import re
from calendar import day_name, month_name
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Final

SESSIONS: Final = 18
PER_HALF: Final = 5


@dataclass(frozen=True, slots=True)
class Turn:
    """What somebody said, and when."""

    speaker: str
    text: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, on a day, and the place of the turn that answers it. `kind`: what it takes to find it."""

    text: str
    on: date
    turn: int
    kind: str


@dataclass(slots=True)
class Conversation:
    """Turns in order, and questions about them."""

    turns: list[Turn] = field(default_factory=list[Turn])
    questions: list[Asked] = field(default_factory=list[Asked])


# Lines of a subject in the files beside this one: `a` and `b` speak; a number marks a turn that questions (`?`) ask
# for. In braces: a name (`a`, `b`), a value of the subject, `ago` (when it was, as it is said), `on`, `month`, `rel`
# (as it is asked: the day, the month, or seen from the day of the question).
_FOLDER: Final = Path(__file__).parent
_NAMES: Final = (
    (("Ann", "Marcus"), ("Priya", "Jonas"), ("Sofia", "Deon"), ("Grace", "Milo"), ("Hanna", "Ravi")),
    (("Nadia", "Felix"), ("Ruth", "Emeka"), ("Clara", "Yusuf"), ("Ingrid", "Paolo"), ("Mei", "Oscar")),
)
_OPEN: Final = ("Hey {b}, good to see you!", "Hi {b}! It has been a while.", "Morning, {b}.", "{b}! How are things?")
_BACK: Final = (
    "Hey {a}! All good here.",
    "Hi {a}, same as ever. And you?",
    "Oh, you know. Busy.",
    "{a}! I was thinking of you.",
)
_CLOSE: Final = (
    "Right, I have to run. Talk soon!",
    "Bye for now, {b}.",
    "My break is over. Take care!",
    "Good night, {b}.",
)


@dataclass(frozen=True, slots=True)
class _Exchange:
    """Lines: who speaks, the mark or "", and the words; and questions: the mark that each asks for, and its words."""

    values: dict[str, list[str]]
    lines: list[tuple[str, str, str]]
    asks: list[tuple[str, str]]


def _exchanges(text: str) -> Iterator[_Exchange]:
    values: dict[str, list[str]] = {}
    for part in text.strip().removeprefix("#").split("\n#"):
        head, *rest = part.rstrip("\n").split("\n")
        if head.strip():
            values = {name: of.split(",") for name, _, of in (each.strip().partition("=") for each in head.split("|"))}
        lines = [each for each in rest if not each.startswith("?")]
        told = [re.match(r"(?:(\d) )?([ab]) (.*)", each) for each in lines]
        asks = [each[2:].partition(" ") for each in rest if each.startswith("?")]
        yield _Exchange(
            values,
            [(found[2], found[1] or "", found[3]) for found in told if found],
            [(mark, words) for mark, _, words in asks],
        )


def _text(name: str) -> str:
    return (_FOLDER / f"conversations_{name}.txt").read_text()


def conversations(half: int) -> list[Conversation]:
    """The conversations of a half: 0, by which something may be chosen, or 1."""
    chance = random.Random(f"conversations {half}")
    exchanges = [*_exchanges(_text(("first", "second")[half]))]
    return [_conversation(chance, exchanges, names) for names in _NAMES[half]]


def _conversation(chance: random.Random, exchanges: list[_Exchange], names: tuple[str, str]) -> Conversation:
    made = Conversation()
    day = date(2025, 1, 6) + timedelta(days=chance.randrange(30))
    waiting: list[_Exchange] = []
    small = [line.split("|") for line in _text("small").strip().split("\n")]
    for _ in range(SESSIONS):
        start = datetime.combine(day, time(chance.randrange(8, 22), chance.randrange(60)))
        clock = (start + timedelta(minutes=at) for at in range(500))

        def say(who: str, words: str, clock: Iterator[datetime] = clock, **given: str) -> int:
            made.turns.append(Turn(who, words.format(**given), next(clock)))
            return len(made.turns) - 1

        first, second = chance.sample(names, 2)
        say(first, chance.choice(_OPEN), b=second)
        say(second, chance.choice(_BACK), a=first)
        for _ in range(3):
            for line in chance.choice(small):
                say(first if line[0] == "a" else second, line[2:])
            if not waiting:
                waiting = chance.sample(exchanges, len(exchanges))
            _tell(chance, waiting.pop(), chance.sample(names, 2), day, made, say)
        for line in chance.choice(small):
            say(first if line[0] == "a" else second, line[2:])
        say(first, chance.choice(_CLOSE), b=second)
        day += timedelta(days=chance.randrange(9, 24))
    often = Counter(each.text for each in made.questions)
    # One that could mean several turns asks for none.
    made.questions = [each for each in made.questions if often[each.text] == 1]
    return made


def _tell(
    chance: random.Random, exchange: _Exchange, names: list[str], day: date, made: Conversation, say: Callable[..., int]
) -> None:
    given = {name: chance.choice(of) for name, of in exchange.values.items()}
    given["a"], given["b"] = names
    given["ago"], then = _ago(chance, day)
    marked: dict[str, int] = {}
    for who, mark, words in exchange.lines:
        text = words.format(**given)
        sentences = re.sub(r"(^|[.?!] )([a-z])", lambda found: found[1] + found[2].upper(), text)
        at = say(given[who], "{text}", text=sentences)
        if mark:
            marked[mark] = at
    end = date(2025, 12, 31)
    for mark, words in exchange.asks:
        asked_on, rel = _seen_from(chance, day)
        told = {**given, "on": f"{then.day} {month_name[then.month]}", "month": month_name[day.month], "rel": rel}
        kind = "time" if re.search(r"\{(rel|on|month)\}", words) else "words"
        on = asked_on if "{rel}" in words else end
        made.questions.append(Asked(words.format(**told), on, marked[mark], kind))


def _ago(chance: random.Random, day: date) -> tuple[str, date]:
    """How a day before is said, and which it is."""
    back = chance.choice((1, 2, 3, 4, 5, 6, 7))
    then = day - timedelta(days=back)
    if back == 1:
        return "yesterday", then
    if back in (2, 3):
        return f"{'two' if back == 2 else 'three'} days ago", then
    if back == 7:
        return "a week ago", then
    return f"last {day_name[then.weekday()]}", then


def _seen_from(chance: random.Random, day: date) -> tuple[date, str]:
    """A day on which something is asked, and how this day is called then."""
    match chance.randrange(4):
        case 0:
            return day + timedelta(days=1), "yesterday"
        case 1:
            return day + timedelta(days=7 - day.weekday() + chance.randrange(7)), "last week"
        case 2:
            after = day.replace(day=1) + timedelta(days=31)
            return after.replace(day=chance.randrange(1, 28)), "last month"
        case _:
            back = chance.randrange(3, 7)
            return day + timedelta(days=back), f"{back} days ago"
