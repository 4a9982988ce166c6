"""Each check accepts what is right, and finds what was doctored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.checks import Account, Read, Sent, Told, check_thread
from tests.chaos.evidence import Effect, Evidence, Message, Run, Turn
from tests.chaos.model import CHOOSER, SUMMARY, Asked


class Case:
    """A thread with two runs. The first was taken over in its second turn; its agent called tools there."""

    def __init__(self) -> None:
        self.found = Evidence(
            "t",
            "completed",
            last_seq=6,
            messages=[
                Message(1, "user", "[t.1] Go on."),
                Message(2, "ann", "ann says n2", cost=20),
                Message(3, "worker", '[{"id": "n4.0"}]', is_text=False),
                Message(4, "worker", "The worker did it n5"),
                Message(5, "user", "[t.2] Go on."),
                Message(6, "ann", "ann says n6"),
            ],
            runs=[Run("r1", "completed", 2, 1, 4, cost=20), Run("r2", "completed", 1, 5, 6)],
            turns=[
                Turn(1, "r1", 1, 2, 2, 10.0, "a"),
                Turn(2, "r1", 2, 3, 4, 20.0, "b"),
                Turn(3, "r2", 3, 6, 6, 30.0, "a"),
            ],
            leases=[(1, "a"), (1, "c"), (2, "b"), (2, None), (3, "a"), (3, None)],
        )
        self.account = Account(
            "t",
            sent=[
                Sent("[t.1] Go on.", run_id="r1", acknowledged=True, began=1, taken=2),
                Sent("[t.2] Go on.", run_id="r2", acknowledged=True, began=22, taken=23),
            ],
            told=[Told(2, "ann", "ann says n2", "r1"), Told(3, "worker", "shown otherwise", "r1")],
            read=[
                [
                    Read("0-1-1", "status", 1, "A", "r1", attempt=1),
                    Read("1-1-0", "message", 1, "A", "r1", 1, "user", "[t.1] Go on.", "m1"),
                    Read("1-1-2", "delta", 1, "A", "r1", source="ann", text="ann ", message_id="m2"),
                    Read("1-1-3", "delta", 2, "A", "r1", source="ann", text="says n2", message_id="m2"),
                    Read("2-1-0", "message", 2, "A", "r1", 2, "ann", "ann says n2", "m2"),
                    Read("2-1-4", "delta", 2, "A", "r1", source="worker", text="lost", message_id="m3"),
                    Read("2-2-1", "status", 3, "B", "r1", attempt=2),
                    Read("2-2-2", "delta", 3, "B", "r1", source="worker", text="The worker did it n5", message_id="m4"),
                    Read("3-2-0", "message", 3, "B", "r1", 3, "worker", "[]", "m9"),
                    Read("4-2-0", "message", 3, "B", "r1", 4, "worker", "The worker did it n5", "m4"),
                    Read("4-2-2147483647", "end", 3, "B", "r1"),
                ]
            ],
        )
        self.asked = [
            Asked(1, "t", CHOOSER, "d1", 3.0),
            Asked(2, "t", "ann", "d2", 4.0, cost=20),
            Asked(3, "t", CHOOSER, "d3", 11.0),
            Asked(4, "t", "worker", "d4", 12.0, ("n4.0", "n4.1")),
            Asked(5, "t", "worker", "d5", 18.0),
            Asked(6, "t", "ann", "d6", 25.0, cost=5),
        ]
        self.effects = [Effect("look", "n4.0", 13.0), Effect("look", "n4.0", 17.0), Effect("pay", "n4.1", 14.0)]

    def broken(self, **options: Any) -> list[str]:
        found = check_thread(self.found, self.account, self.asked, self.effects, **options)
        return [each.what for each in found]


def test_what_is_right_is_not_broken() -> None:
    assert Case().broken() == []


def test_a_summary_between_two_choices_is_no_speaker() -> None:
    case = Case()
    case.asked[:1] = [case.asked[0], Asked(7, "", SUMMARY, "s1", 3.1), replace(case.asked[0], number=8, at=3.2)]
    assert "the same choice was made again after a speaker was asked" not in case.broken()


def test_a_late_worker_may_ask() -> None:
    case = Case()
    case.asked.append(Asked(7, "t", "ann", "d2", 10.5))
    assert case.broken(late_workers=True) == []
    assert case.broken() != []


def change(part: list[Any], index: int, **values: Any) -> None:
    part[index] = replace(part[index], **values)


def lost(case: Case) -> None:
    del case.found.messages[3]


def another(case: Case) -> None:
    change(case.found.messages, 1, content="ann says n2 otherwise")


def changed(case: Case) -> None:
    case.found.changed.append(2)


def gap(case: Case) -> None:
    case.found.last_seq = 7


def lost_input(case: Case) -> None:
    change(case.found.messages, 4, content="something else")


def withdrawn_and_begun(case: Case) -> None:
    lost_input(case)
    case.account.sent[1].withdrawn = True


def doubled_input(case: Case) -> None:
    case.found.messages.append(Message(7, "user", "[t.1] Go on."))
    case.found.last_seq = 7


def out_of_order(case: Case) -> None:
    change(case.found.messages, 0, content="[t.2] Go on.")
    change(case.found.messages, 4, content="[t.1] Go on.")


def refused_and_stored(case: Case) -> None:
    case.account.sent[1].acknowledged = False
    case.account.sent[1].refused = "409"


def no_row(case: Case) -> None:
    case.account.sent[1].run_id = "r9"


def unfinished_run(case: Case) -> None:
    change(case.found.runs, 1, status="running")


def unfinished_thread(case: Case) -> None:
    case.found.status = "awaiting_input"


def queue_left(case: Case) -> None:
    case.found.waiting = 1


def count_left(case: Case) -> None:
    case.found.queued = 1


def failed(case: Case) -> None:
    change(case.found.runs, 1, status="error", error="something")


def epoch_back(case: Case) -> None:
    case.found.leases.append((2, "b"))


def epoch_skipped(case: Case) -> None:
    case.found.leases.append((5, "b"))


def two_owners(case: Case) -> None:
    at = next(number for number, lease in enumerate(case.found.leases) if lease[0] == 2 and lease[1] is not None)
    held = case.found.leases[at]
    case.found.leases[at : at + 1] = [held, (2, "another"), held]


def stored_by_a_holder(case: Case) -> None:
    change(case.found.turns, 0, owner="c")


def not_held(case: Case) -> None:
    change(case.found.turns, 2, epoch=4)


def epoch_of_two_runs(case: Case) -> None:
    change(case.found.turns, 2, epoch=2)


def old_epoch_wrote(case: Case) -> None:
    change(case.found.turns, 2, epoch=1, run_id="r1")


def turn_twice(case: Case) -> None:
    case.found.turns.insert(2, case.found.turns[1])


def same_message(case: Case) -> None:
    change(case.found.turns, 2, first_seq=4)


def asked_again(case: Case) -> None:
    case.asked.append(Asked(7, "t", "ann", "d2", 10.5))


def never_asked(case: Case) -> None:
    del case.asked[5]


def chosen_again(case: Case) -> None:
    case.asked.insert(5, Asked(7, "t", CHOOSER, "d3", 19.0))


def calls_asked_again(case: Case) -> None:
    case.asked.insert(4, Asked(7, "t", "worker", "d4", 15.0, ("n7.0",)))


def paid_twice(case: Case) -> None:
    case.effects.append(Effect("pay", "n4.1", 17.0))


def paid_too_often(case: Case) -> None:
    case.account.allowed = Counter({"n4.1": 1})
    case.effects += [Effect("pay", "n4.1", 17.0)] * 2


def ordered_twice(case: Case) -> None:
    case.effects += [Effect("order", "n4.0", 13.0)] * 2


def kept_twice(case: Case) -> None:
    case.found.files = [("plot-n4.0.txt", "file-a"), ("plot-n4.0.txt", "file-b")]


def file_lost(case: Case) -> None:
    text = "[file plot-n4.0.txt, text/plain, 3 bytes, id file-a]"
    change(case.found.messages, 2, content=text, is_text=False)


def summarised_again(case: Case) -> None:
    case.asked += [Asked(7, "t", SUMMARY, "d7", 26.0), Asked(8, "t", "sam", "d8", 27.0)]
    case.asked.append(Asked(9, "t", SUMMARY, "d7", 28.0))


def log_repeats(case: Case) -> None:
    log = case.account.read[0]
    log.insert(5, log[4])


def log_skips(case: Case) -> None:
    del case.account.read[0][8]


def pieces_skip(case: Case) -> None:
    del case.account.read[0][2]


def pieces_end_early(case: Case) -> None:
    change(case.account.read[0], 7, text="The worker")


def uncounted(case: Case) -> None:
    change(case.found.runs, 0, cost=19)


def counted_twice(case: Case) -> None:
    change(case.found.runs, 1, cost=20)


def unreadable(case: Case) -> None:
    case.found.unreadable = "DamagedState"


@pytest.mark.parametrize(
    ("doctor", "complaint"),
    [
        (lost, "not numbered"),
        (another, "is another one"),
        (changed, "was changed"),
        (gap, "not numbered"),
        (lost_input, "[t.2] is lost"),
        (withdrawn_and_begun, "[t.2] is lost"),
        (doubled_input, "stored 2 times"),
        (out_of_order, "out of order"),
        (refused_and_stored, "is stored and was refused: 409"),
        (no_row, "has no row"),
        (unfinished_run, "a run is running"),
        (unfinished_thread, "the thread is awaiting_input"),
        (queue_left, "1 inputs wait"),
        (count_left, "1 are counted"),
        (failed, "a run failed: something"),
        (epoch_back, "epoch 2 follows 3"),
        (epoch_skipped, "epoch 5 follows 3"),
        (two_owners, "epoch 2 went back to an owner"),
        (stored_by_a_holder, "turn 1 was stored by who only held its epoch"),
        (not_held, "which nobody held"),
        (epoch_of_two_runs, "of two runs"),
        (old_epoch_wrote, "epoch 1 wrote after 2"),
        (turn_twice, "turn 2 follows 2"),
        (same_message, "wrote the same message"),
        (asked_again, "ann was asked again after"),
        (never_asked, "never asked"),
        (chosen_again, "same choice"),
        (ordered_twice, "took effect 2 times"),
        (kept_twice, "is kept 2 times"),
        (file_lost, "is not kept as file-a"),
        (summarised_again, "same summary"),
        (calls_asked_again, "although the tools of n4 had begun"),
        (paid_twice, "took effect 2 times"),
        (paid_too_often, "took effect 3 times"),
        (log_repeats, "came after"),
        (log_skips, "message 4 follows 2"),
        (pieces_skip, "are not the message"),
        (pieces_end_early, "are not the message"),
        (uncounted, "usage is 19 tokens; messages hold 20"),
        (counted_twice, "usage is 40 tokens; messages hold 20, models have used 25"),
        (unreadable, "cannot be loaded"),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
def test_what_was_doctored_is_found(doctor: Callable[[Case], None], complaint: str) -> None:
    case = Case()
    doctor(case)
    assert any(complaint in what for what in case.broken()), case.broken()


def test_a_message_that_was_shown_and_is_gone() -> None:
    case = Case()
    case.account.told.append(Told(9, "ann", "x", "r2"))
    assert case.broken() == ["a message that was shown is lost"]


def test_an_allowed_repetition() -> None:
    case = Case()
    case.account.allowed = Counter({"n4.1": 1})
    case.effects.append(Effect("pay", "n4.1", 17.0))
    assert case.broken() == []


def test_an_input_that_was_withdrawn_before_it_began() -> None:
    case = Case()
    del case.found.messages[4:], case.found.turns[2:], case.asked[5:]
    case.found.last_seq = 4
    case.found.runs[1] = Run("r2", "stopped")
    assert case.broken() == ["the input [t.2] is lost"]
    case.account.sent[1].withdrawn = True
    assert case.broken() == []


def test_an_answer_from_the_queue_goes_with_the_run_that_is_stopped_before_it_uses_it() -> None:
    case = Case()
    del case.found.messages[4:], case.found.turns[2:], case.asked[5:]
    case.found.last_seq = 4
    case.found.runs[1] = Run("r2", "completed", joined="r1")
    assert "the input [t.2] is lost" in case.broken()
    case.found.runs[0] = replace(case.found.runs[0], status="stopped")
    assert "the input [t.2] is lost" not in case.broken()


def test_inputs_that_did_not_wait_for_each_other_have_no_order() -> None:
    case = Case()
    out_of_order(case)
    case.account.sent[1].began = 1.5
    assert case.broken() == []
