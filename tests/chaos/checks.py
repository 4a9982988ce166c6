"""The invariants, as pure functions: what was seen from outside against what is stored. Each returns what is broken."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise

from drsai_backend.runs.events import Position
from tests.chaos.evidence import Effect, Evidence, Message, Turn
from tests.chaos.model import CHOOSER, NUMBER, SUMMARY, TAG, Asked

FINAL = frozenset({"completed", "stopped", "error"})
ONCE = frozenset({"pay", "transfer", "plot", "order", "n__mark"})
"""The tools that nobody may call again unasked."""
ECHOES = frozenset({"paying"})
"""Flows: what they say and call holds what the user has said."""
_FILE = re.compile(r"\[file (plot-n[\d.]+\.txt), text/plain, \d+ bytes, id (file-[0-9a-f]+)\]")


@dataclass(frozen=True, slots=True)
class Broken:
    """An invariant that does not hold, and where."""

    what: str
    thread: str
    run: str | None = None
    seq: int | None = None

    def __str__(self) -> str:
        where = [self.thread, *([self.run] if self.run else []), *([f"seq {self.seq}"] if self.seq else [])]
        return f"{self.what} [{', '.join(where)}]"


@dataclass(slots=True)
class Sent:
    """A user input as its client knows it.

    Attributes:
        acknowledged: the server has said that it took the input.
        refused: what the server said when it did not take it.
        withdrawn: the client has asked to stop this very run, maybe before it began.
        began, taken: when it was sent first, and when it was acknowledged.
    """

    text: str
    policy: str = "enqueue"
    run_id: str | None = None
    acknowledged: bool = False
    refused: str | None = None
    withdrawn: bool = False
    began: float = 0.0
    taken: float = 0.0


@dataclass(frozen=True, slots=True)
class Told:
    """A stored message that a client was told of."""

    seq: int
    source: str
    content: str
    run_id: str = ""


@dataclass(frozen=True, slots=True)
class Read:
    """An event of a log, as a reader got it. `connection` counts the reader's connections, `place` names the server."""

    id: str
    name: str
    connection: int
    place: str
    run_id: str = ""
    seq: int = 0
    source: str = ""
    text: str = ""
    message_id: str = ""
    attempt: int = 0


@dataclass(slots=True)
class Account:
    """What clients know of a thread: the inputs in the order in which they were sent, what they were told, what each
    reader of a run's log has read, how often a person was asked about a tool call that was cut, and how often he said
    that it may be repeated. `ordered`: nothing that was done to the thread lets one input overtake another."""

    thread: str
    sent: list[Sent] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    read: list[list[Read]] = field(default_factory=list)
    asked: int = 0
    allowed: Counter[str] = field(default_factory=Counter)
    ordered: bool = True
    stuck: list[Broken] = field(default_factory=list)


def check_numbers(found: Evidence) -> list[Broken]:
    """Messages are numbered without a gap, and never change."""
    broken = [Broken("a stored message was changed", found.thread, seq=seq) for seq in found.changed]
    seqs = [message.seq for message in found.messages]
    if seqs != list(range(1, found.last_seq + 1)):
        gap = next((seq for seq, wanted in zip(seqs, range(1, len(seqs) + 1), strict=True) if seq != wanted), len(seqs))
        broken.append(Broken(f"messages are not numbered 1 to {found.last_seq}", found.thread, seq=gap))
    return broken


def check_told(found: Evidence, told: Iterable[Told]) -> list[Broken]:
    """Every message that a client was told of is stored, with its number and words."""
    stored = {message.seq: message for message in found.messages}
    broken: list[Broken] = []
    for each in told:
        message = stored.get(each.seq)
        if message is None:
            broken.append(Broken("a message that was shown is lost", found.thread, each.run_id, each.seq))
        elif message.source != each.source or (message.is_text and message.content != each.content):
            broken.append(Broken("a message that was shown is another one", found.thread, each.run_id, each.seq))
    return broken


def check_inputs(found: Evidence, sent: Sequence[Sent], *, ordered: bool = True) -> list[Broken]:
    """Every acknowledged input is stored once; none twice; `ordered`: one that was sent after another had been
    acknowledged comes after it."""
    places: dict[str, list[int]] = {}
    for message in found.messages:
        for tag in TAG.finditer(message.content) if message.source not in ECHOES else ():
            places.setdefault(tag.group(), []).append(message.seq)
    runs = {run.run_id: run for run in found.runs}
    # Several inputs of one run, or one that joined it from the queue: answers to its questions, which go when the run
    # is stopped before it has used them.
    uses = Counter(each.run_id for each in sent if each.acknowledged)
    broken: list[Broken] = []
    order: list[tuple[int, Sent]] = []
    for each in sent:
        tag = TAG.match(each.text)
        assert tag is not None, each.text
        at = places.get(tag.group(), [])
        run = runs.get(each.run_id or "")
        if len(at) > 1:
            broken.append(
                Broken(f"the input {tag.group()} is stored {len(at)} times", found.thread, each.run_id, at[1])
            )
        if at and each.refused:
            what = f"the input {tag.group()} is stored and was refused: {each.refused}"
            broken.append(Broken(what, found.thread, None, at[0]))
        if each.acknowledged and not at:
            joined = runs.get((run.joined if run is not None else None) or "")
            served_by = joined or run
            stopped = served_by is not None and served_by.status == "stopped"
            never_begun = stopped and run is not None and run.first_seq == 0 and each.withdrawn
            is_answer = uses[each.run_id] > 1 or joined is not None
            if not never_begun and not (stopped and is_answer):
                broken.append(Broken(f"the input {tag.group()} is lost", found.thread, each.run_id))
        if each.acknowledged and each.run_id and run is None:
            broken.append(Broken("an acknowledged run has no row", found.thread, each.run_id))
        if at and each.policy == "enqueue" and each.acknowledged:
            order.append((at[0], each))
    if ordered:
        broken += [
            Broken("inputs are out of order", found.thread, late.run_id, after)
            for (before, early), (after, late) in combinations(order, 2)
            if after < before and early.taken <= late.began
        ]
    return broken


def check_ended(found: Evidence) -> list[Broken]:
    """Everything came to an end."""
    broken = [
        Broken(f"a run is {run.status} at the end", found.thread, run.run_id)
        for run in found.runs
        if run.status not in FINAL
    ]
    if found.status not in FINAL:
        broken.append(Broken(f"the thread is {found.status} at the end", found.thread))
    if found.waiting or found.queued:
        broken.append(Broken(f"{found.waiting} inputs wait, {found.queued} are counted", found.thread))
    return broken


def check_errors(found: Evidence, expected: Sequence[str]) -> list[Broken]:
    """No run failed, but for reasons that begin with one of these."""
    return [
        Broken(f"a run failed: {run.error}", found.thread, run.run_id)
        for run in found.runs
        if run.status == "error" and not (run.error or "").startswith(tuple(expected))
    ]


def check_one_runner(found: Evidence) -> list[Broken]:
    """No thread ever had two runners: an epoch is one run's, and one owner's until another one holds the run to resume
    it (`hold`, in the epoch of who is gone), who stores no turn in it; epochs and turns only grow, and the turns of a
    thread do not overlap."""
    broken: list[Broken] = []
    for (before, _), (after, _) in pairwise(found.leases):
        if after not in (before, before + 1):
            broken.append(Broken(f"epoch {after} follows {before}", found.thread))
    owners: dict[int, list[str]] = {}
    for epoch, owner in found.leases:
        names = owners.setdefault(epoch, [])
        if owner is not None and names[-1:] != [owner]:
            if owner in names[:1]:  # Others only hold it, again where they were too slow.
                broken.append(Broken(f"epoch {epoch} went back to an owner", found.thread))
            names.append(owner)
    runs: dict[int, str] = {}
    for turn in found.turns:
        begun_by = owners.get(turn.epoch, [])[:1]
        if not begun_by:
            broken.append(Broken(f"turn {turn.turn} is of epoch {turn.epoch}, which nobody held", found.thread))
        elif turn.owner != begun_by[0]:
            broken.append(Broken(f"turn {turn.turn} was stored by who only held its epoch", found.thread))
        if runs.setdefault(turn.epoch, turn.run_id) != turn.run_id:
            broken.append(Broken(f"epoch {turn.epoch} is of two runs", found.thread, turn.run_id, turn.first_seq))
    for before, after in pairwise(found.turns):
        if after.turn != before.turn + 1:
            broken.append(Broken(f"turn {after.turn} follows {before.turn}", found.thread, after.run_id))
        if after.epoch < before.epoch:
            broken.append(Broken(f"epoch {after.epoch} wrote after {before.epoch}", found.thread, after.run_id))
        if after.first_seq <= before.last_seq:
            broken.append(Broken("two turns wrote the same message", found.thread, after.run_id, after.first_seq))
    return broken


def check_not_asked_again(found: Evidence, asked: Sequence[Asked]) -> list[Broken]:
    """What a stored turn came of was not asked again after it was stored."""
    by_number = {each.number: each for each in asked}
    broken: list[Broken] = []
    for turn, message in _said(found):
        for number in {int(each) for each in NUMBER.findall(message.content)}:
            answer = by_number.get(number)
            if answer is None:
                broken.append(Broken(f"n{number} was never asked for this thread", found.thread, seq=message.seq))
                continue
            broken += [
                Broken(
                    f"{each.agent} was asked again after its turn was stored", found.thread, turn.run_id, message.seq
                )
                for each in asked
                if each.digest == answer.digest and each.agent == answer.agent and each.at > turn.at
            ]
    return broken


def _said(found: Evidence) -> Iterable[tuple[Turn, Message]]:
    """The messages of each turn that an agent has said."""
    messages = {message.seq: message for message in found.messages}
    for turn in found.turns:
        for seq in range(turn.first_seq, turn.last_seq + 1):
            if seq in messages and messages[seq].source not in ("user", "person"):
                yield turn, messages[seq]


def check_not_chosen_again(thread: str, asked: Sequence[Asked]) -> list[Broken]:
    """A choice of speakers is stored before the speaker is asked, and not made again after that. Summaries say nothing
    of it: one that tells no thread may be another's."""
    chosen: dict[str, bool] = {}
    broken: list[Broken] = []
    for each in asked:
        if each.agent == SUMMARY:
            continue
        if each.agent == CHOOSER:
            if chosen.get(each.digest):
                broken.append(Broken("the same choice was made again after a speaker was asked", thread))
            chosen[each.digest] = False
        else:
            chosen = dict.fromkeys(chosen, True)
    return broken


def check_calls_not_asked_again(thread: str, asked: Sequence[Asked], effects: Sequence[Effect]) -> list[Broken]:
    """An answer that calls tools is recorded before the first tool starts, and not asked for again after that."""
    first: dict[str, float] = {}
    for effect in effects:
        first.setdefault(effect.token, effect.at)
    broken: list[Broken] = []
    for answer in asked:
        begun = min((first[token] for token in answer.tokens if token in first), default=None)
        if begun is not None:
            broken += [
                Broken(f"{each.agent} was asked again although the tools of n{answer.number} had begun", thread)
                for each in asked
                if each.digest == answer.digest and each.at > begun
            ]
    return broken


def check_effects(thread: str, effects: Iterable[Effect], allowed: Mapping[str, int]) -> list[Broken]:
    """A tool that is not idempotent took effect once, and once more for each time that a person allowed it."""
    counts = Counter(effect.token for effect in effects if effect.tool in ONCE)
    return [
        Broken(f"the call {token} took effect {count} times, {allowed.get(token, 0)} repetitions were allowed", thread)
        for token, count in counts.items()
        if count > 1 + allowed.get(token, 0)
    ]


def check_files(found: Evidence) -> list[Broken]:
    """A file that a tool has made is kept once, and what the thread says of it is true."""
    kept = Counter(name for name, _ in found.files)
    broken = [
        Broken(f"the file {name} is kept {count} times", found.thread) for name, count in kept.items() if count > 1
    ]
    return broken + [
        Broken(f"the file {name} is not kept as {file_id}", found.thread, seq=message.seq)
        for message in found.messages
        for name, file_id in _FILE.findall(message.content)
        if (name, file_id) not in found.files
    ]


def check_not_summarised_again(found: Evidence, asked: Sequence[Asked]) -> list[Broken]:
    """A summary is stored before its agent is asked, and not made again after that, unless somebody stopped the run.
    One that tells no thread is left out: another thread may have had the same to summarise."""
    if any(run.status == "stopped" for run in found.runs):
        return []
    made: dict[str, bool] = {}
    broken: list[Broken] = []
    for each in asked:
        if each.agent == SUMMARY and not each.thread:
            continue
        if each.agent == SUMMARY:
            if made.get(each.digest):
                broken.append(Broken("the same summary was made again after its agent was asked", found.thread))
            made[each.digest] = False
        else:
            made = dict.fromkeys(made, True)
    return broken


def check_log(thread: str, read: Sequence[Read]) -> list[Broken]:
    """What one reader of a run's log got over all its connections: ids grow, messages come once and without gap, and
    pieces of text are a beginning of their message, or all of it when they came over one connection."""
    broken: list[Broken] = []
    for before, after in pairwise(read):
        if Position.parse(after.id) <= Position.parse(before.id):
            broken.append(Broken(f"the event {after.id} came after {before.id}", thread, after.run_id, after.seq))
    seqs = [each.seq for each in read if each.name == "message"]
    broken += [
        Broken(f"message {after} follows {before} in the log", thread, read[0].run_id, after)
        for before, after in pairwise(seqs)
        if after != before + 1
    ]
    return broken + _check_pieces(thread, read)


def _check_pieces(thread: str, read: Sequence[Read]) -> list[Broken]:
    broken: list[Broken] = []
    pieces: dict[str, list[Read]] = {}
    for each in read:
        if each.name == "status":
            pieces.clear()  # What was told of a turn that is repeated is void.
        elif each.name == "delta":
            pieces.setdefault(each.message_id, []).append(each)
        elif each.name == "message" and (parts := pieces.pop(each.message_id, None)) is not None:
            text = "".join(part.text for part in parts)
            # The rest of a message that was stored while nobody read comes as the message.
            in_one_go = {part.connection for part in parts} == {each.connection}
            if not each.text.startswith(text) or (in_one_go and text != each.text):
                what = f"the pieces {text!r} are not the message {each.text!r}"
                broken.append(Broken(what, thread, each.run_id, each.seq))
    return broken


def check_usage(found: Evidence, sent: Iterable[Sent], asked: Sequence[Asked]) -> list[Broken]:
    """The usage of these inputs' runs is what their models said they had used: all that was stored of it, and nothing
    twice. What was asked and lost with its process may be missing."""
    names = {each.run_id for each in sent}
    runs = [run for run in found.runs if run.run_id in names]
    stored, used = sum(run.cost for run in runs), sum(each.cost for each in asked)
    seqs = {seq for run in runs for seq in range(run.first_seq, run.last_seq + 1)}
    said = sum(message.cost for message in found.messages if message.seq in seqs)
    if said <= stored <= used:
        return []
    return [Broken(f"usage is {stored} tokens; messages hold {said}, models have used {used}", found.thread)]


def check_thread(
    found: Evidence,
    account: Account,
    asked: Sequence[Asked],
    effects: Sequence[Effect],
    *,
    expected_errors: Sequence[str] = (),
    late_workers: bool = False,
) -> list[Broken]:
    """Everything, for one thread that has come to rest. `late_workers`: processes were stopped and continued, so that
    one may ask for what another has stored meanwhile."""
    tokens = {token for each in asked for token in each.tokens}
    # A flow's tool is called with what the user has said.
    mine = [each for each in effects if each.token in tokens or each.token.startswith(f"[{found.thread}.")]
    broken = [
        *account.stuck,
        *check_numbers(found),
        *check_told(found, account.told),
        *check_inputs(found, account.sent, ordered=account.ordered),
        *check_ended(found),
        *check_errors(found, expected_errors),
        *check_one_runner(found),
        *check_usage(found, account.sent, asked),
        *check_effects(found.thread, mine, account.allowed),
        *check_files(found),
    ]
    if not late_workers:
        broken += check_not_asked_again(found, asked)
        broken += check_not_chosen_again(found.thread, asked)
        broken += check_not_summarised_again(found, asked)
        broken += check_calls_not_asked_again(found.thread, asked, mine)
    for log in account.read:
        broken += check_log(found.thread, log)
    if found.unreadable is not None:
        broken.append(Broken(f"the state cannot be loaded: {found.unreadable}", found.thread))
    return broken
