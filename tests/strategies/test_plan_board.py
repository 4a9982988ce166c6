"""Plans as data, and what becomes of them, whatever their steps come to."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drsai_backend.datamodel.task_lists import TaskList, TaskStatus, dump_mark, fold, mark_of
from drsai_backend.strategies.plan_execute.board import Board, Bounds, Next
from drsai_backend.strategies.plan_execute.plan import PlanError, Step, check_plan, new_id, read_plan
from drsai_backend.strategies.plan_execute.prompts import begins, left_over, outcome_of, to_answer, to_do, to_plan


def steps_of(board: Board, data: st.DataObject) -> list[Step]:
    """A plan that can be followed: each step may need earlier ones, and those that are done."""
    first = new_id(board.taken)
    count = data.draw(st.integers(0, min(5, max(1, board.bounds.max_steps - board.used))))
    done = [each.id for each in board.tasks.values() if each.status is TaskStatus.DONE]
    steps: list[Step] = []
    for number in range(first, first + count):
        known = [*done, *(each.id for each in steps)]
        needs = data.draw(st.lists(st.sampled_from(known), unique=True, max_size=3)) if known else []
        steps.append(Step(id=str(number), do=f"do {number}", needs=needs))
    # The order of a plan need not be that of its dependencies.
    return data.draw(st.permutations(steps))


bounds = st.builds(
    Bounds,
    max_steps=st.integers(1, 12),
    retries=st.integers(0, 3),
    replans=st.integers(0, 3),
    at_once=st.integers(1, 4),
    check=st.booleans(),
)


@given(bounds, st.data())
def test_every_run_of_a_plan_ends(limits: Bounds, data: st.DataObject) -> None:
    board = Board(limits)
    told: list[tuple[int, Any]] = []
    attempts: dict[str, int] = {}

    def happens(mark: object, said: str = "") -> None:
        told.append((len(told) + 1, {"source": "m", "metadata": dump_mark(mark), "content": said}))  # type: ignore[arg-type]
        board.take(mark, said)  # type: ignore[arg-type]

    for _ in range(200):
        # As in another process, which has the messages alone.
        again = Board(limits)
        for _, message in told:
            again.take(mark_of(message["metadata"]), message["content"])  # type: ignore[arg-type]
        assert again == board
        what, ready = board.next()
        match what:
            case Next.PLAN:
                if data.draw(st.integers(0, 4)):
                    steps = steps_of(board, data)
                    done = [each.id for each in board.tasks.values() if each.status is TaskStatus.DONE]
                    most = max(1, limits.max_steps - board.used)
                    check_plan(steps, most=most, taken=board.taken, done=done)
                    assert to_plan(board, []) is not None
                    happens(board.planned("list", "task", steps))
                else:
                    happens(board.unplanned("list", "task"))
            case Next.CHECK:
                verdict = data.draw(st.sampled_from(["approve", "edit", "deny", "wish"]))
                if verdict == "approve":
                    happens(board.accepted())
                elif verdict == "edit":
                    ids = board.waiting
                    happens(board.changed([Step(id=ids[0], do="this alone", needs=[])]))
                else:
                    happens(board.refused(for_good=verdict == "deny" or not board.may_replan), "shorter")
            case Next.RUN:
                assert 1 <= len(ready) <= limits.at_once
                for each in ready:
                    task = board.tasks[each]
                    assert all(board.tasks[need].status is TaskStatus.DONE for need in task.needs)
                    attempts[each] = attempts.get(each, 0) + 1
                    assert attempts[each] <= 1 + limits.retries
                    assert to_do(board, each, "task", ["more"]).endswith(task.do)
                assert begins(board, ready)
                happens(board.started(ready))
                assert board.batch == ready
                for each in data.draw(st.permutations(ready)):
                    outcome: Any = data.draw(st.sampled_from(["done", "done", "failed", "replan"]))
                    happens(board.ends_as(each, outcome), "because")
            case Next.ANSWER | Next.REFUSED:
                break
    else:
        pytest.fail("it does not end")
    assert sum(attempts.values()) == board.used <= limits.max_steps
    assert board.plans <= 1 + limits.replans
    if what is Next.ANSWER and board.tasks:
        assert to_answer(board, "task")
        happens(board.finished())
        assert bool(left_over(board)) == (bool(board.left) or board.no_plan) == (board.list.state == "incomplete")  # type: ignore[union-attr]
    if board.list is not None:
        assert not board.list.open
        [stored] = fold(told)
        assert stored.tasks.keys() == board.tasks.keys()
        for name, task in stored.tasks.items():
            assert (task.status, task.attempts) == (board.tasks[name].status, attempts.get(name, 0))


def test_a_status_changes_as_the_lifecycle_says() -> None:
    tasks = TaskList("l", "", "m")
    tasks.apply({"list": "l", "add": [{"id": "1", "do": "x", "needs": []}]})
    for status in ("done", "failed", "waiting"):
        with pytest.raises(ValueError, match="does not become"):
            copy.deepcopy(tasks).apply({"list": "l", "now": {"1": status}})
    tasks.apply({"list": "l", "now": {"1": "running"}})
    with pytest.raises(ValueError, match="stays in its list"):
        tasks.apply({"list": "l", "drop": ["1"]})
    cut = copy.deepcopy(tasks)
    cut.cut()
    assert (cut.state, cut.tasks["1"].status) == ("stopped", "skipped")


def test_a_mark_that_somebody_else_has_written_harms_nothing() -> None:
    bad = ["", "[]", "{", '{"list": 1}', '{"list": "l", "now": 3}', '{"list": "l", "content": "", "add": [{}]}']
    assert [each.tasks for each in fold((n, {"metadata": {"drsai_tasks": text}}) for n, text in enumerate(bad))] == [{}]


@pytest.mark.parametrize(
    ("text", "ids", "needs"),
    [
        ('{"steps": [{"id": "1", "do": "a", "needs": []}, {"id": "b", "do": "c", "needs": ["1"]}]}', "1b", ["", "1"]),
        ('Sure!\n```json\n{"plan": [{"step": 1, "task": "a"}, {"step": 2, "task": "b"}]}\n```', "12", ["", "1"]),
        ('[{"number": 1, "description": "a", "depends_on": []}, {"number": 2, "title": "b"}]', "12", ["", ""]),
        ('["a", "b", "c"]', "123", ["", "1", "2"]),
        ('{"steps": {"plan": [{"id": "Step 1", "do": "a", "needs": null}, {"do": "b", "needs": 1}]}}', "12", ["", "1"]),
        ("Here it is [my plan]:\n1. a\n2) b\nStep 3: c", "123", ["", "1", "2"]),
        ('{"steps": []}', "", []),
    ],
)  # fmt: skip
def test_a_plan_is_found_however_it_is_written(text: str, ids: str, needs: list[str]) -> None:
    steps = read_plan(text)
    assert "".join(each.id for each in steps) == ids
    assert ["".join(each.needs) for each in steps] == needs
    check_plan(steps, most=5)


@pytest.mark.parametrize("text", ["", "I cannot.", "{", "[" * 3000, '{"steps": "two"}', '{"steps": [1, 2]}', "null"])
def test_what_is_no_plan(text: str) -> None:
    with pytest.raises(PlanError, match="no JSON object"):
        read_plan(text)


def step(id: str, *needs: str, do: str = "x") -> Step:
    return Step(id=id, do=do, needs=list(needs))


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ([step("1"), step("1")], "two steps have the id '1'"),
        ([step("1", "2")], "needs step '2', which is not there"),
        ([step("1", "8")], "needs step '8', which is not done"),
        ([step("9")], "has the id of an earlier step"),
        ([step("1", "1")], "needs itself"),
        ([step("1", "3"), step("2", "1"), step("3", "2"), step("4", "9")], "steps '1', '2', '3' wait for each other"),
        ([step(str(n)) for n in range(6)], "at most 5"),
        ([step("")], "step number 1 has no id"),
        ([step("1", do=" ")], "does not say what is to be done"),
        ([step("1", do="x" * 2001)], "more than 2000 characters"),
    ],
)
def test_what_is_wrong_with_a_plan(steps: list[Step], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        check_plan(steps, most=5, taken=["8", "9"], done=["9"])


@pytest.mark.parametrize(
    ("text", "outcome", "said"),
    [
        ("It is 3.", "done", "It is 3."),
        ("", "failed", "It gave no result."),
        ("FAILED: no such city", "failed", "no such city"),
        ("**Failed:** no such city\nat all", "failed", "no such city\nat all"),
        ("[REPLAN] there are two", "replan", "there are two"),
        ("replan: two", "replan", "two"),
        ("FAILED", "failed", "No reason was given."),
        ("Failed attempts were 3.", "done", "Failed attempts were 3."),
    ],
)
def test_what_a_step_has_come_to(text: str, outcome: str, said: str) -> None:
    assert outcome_of(text) == (outcome, said)
