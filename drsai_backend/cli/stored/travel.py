"""`drsai threads turns | branches | fork | rewind | clear`: the past of stored conversations."""

from __future__ import annotations

from drsai_backend.cli.screen import Colours, age, in_line, make_console, print_json, whose_name
from drsai_backend.cli.stored.threads import threads_of
from drsai_backend.datamodel.owner import Owner
from drsai_backend.runs.threads.travel import BranchView


def list_turns(
    owner: Owner,
    thread_id: str,
    branch: int | None,
    after: int,
    limit: int,
    database_url: str | None,
    *,
    as_json: bool,
) -> None:
    with threads_of(owner, database_url) as drsai:
        page = drsai.turns(owner.user_id, thread_id, branch=branch, after=after, limit=limit, tenant=owner.tenant)
    if as_json:
        print_json([each.model_dump(mode="json") for each in page.items])
        return
    console, colours = make_console(), Colours()
    if not page.items:
        console.print(f"{in_line(thread_id)} has no turns {'yet' if not after else 'after that'}.")
    for each in page.items:
        source = in_line(each.source or "")
        seqs = f"{each.first_seq}-{each.last_seq}" if each.first_seq < each.last_seq else f"{each.last_seq}"
        said = f"messages {seqs}" if each.last_seq >= each.first_seq else "no messages"
        speaker = f"[bold {colours.of(each.source or '')}]{source}[/]"
        when = f"[dim]{in_line(each.run_id)}  {age(each.created_at)}[/]"
        console.print(f"[bold]{each.turn:>4}[/]  {speaker}  {said}  {when}", soft_wrap=True)
    if page.next is not None:
        console.print(f"[dim]There are more: --after {page.next}[/]")


def list_branches(owner: Owner, thread_id: str, database_url: str | None, *, as_json: bool) -> None:
    branches: list[BranchView] = []
    with threads_of(owner, database_url) as drsai:
        after: int | None = -1
        while after is not None:
            page = drsai.branches(owner.user_id, thread_id, after=after, tenant=owner.tenant)
            branches += page.items
            after = page.next
    if as_json:
        print_json([each.model_dump(mode="json") for each in branches])
        return
    for each in branches:
        mark = "*" if each.is_current else " "
        left = "" if each.parent is None else f", left {each.parent} after turn {each.at_turn}, message {each.at_seq}"
        ends = f"ends with turn {each.last_turn}, message {each.last_seq}{left}"
        make_console().print(
            f"{mark} [bold]{each.number:>3}[/]  {ends}  [dim]{age(each.created_at)}[/]", soft_wrap=True
        )


def fork(
    owner: Owner,
    thread_id: str,
    at: int | None,
    turn: int | None,
    branch: int | None,
    new: str | None,
    to_user: str | None,
    database_url: str | None,
) -> None:
    place = {"at": at, "turn": turn, "branch": branch}
    with threads_of(owner, database_url) as drsai:
        made = drsai.fork(owner.user_id, thread_id, **place, new_thread_id=new, to_user=to_user, tenant=owner.tenant)
    whose = "" if to_user is None else f" of {in_line(whose_name(Owner(owner.tenant, to_user)))}"
    what = f"{in_line(thread_id)} is forked: [bold]{in_line(made.thread_id)}[/]{whose}, {made.message_count} messages"
    make_console().print(what, soft_wrap=True)


def rewind(
    owner: Owner, thread_id: str, at: int | None, turn: int | None, branch: int | None, database_url: str | None
) -> None:
    place = {"at": at, "turn": turn, "branch": branch}
    with threads_of(owner, database_url) as drsai:
        number = drsai.rewind(owner.user_id, thread_id, **place, tenant=owner.tenant).branch or 0
        page = drsai.branches(owner.user_id, thread_id, after=number - 1, limit=1, tenant=owner.tenant)
    current = page.items[0]
    where = f"turn {current.last_turn}, message {current.last_seq}"
    text = f"{in_line(thread_id)} continues after {where}; `drsai threads branches` shows what it left."
    make_console().print(text, soft_wrap=True)


def clear(owner: Owner, thread_id: str, database_url: str | None) -> None:
    with threads_of(owner, database_url) as drsai:
        drsai.clear_history(owner.user_id, thread_id, tenant=owner.tenant)
    text = f"{in_line(thread_id)} begins anew; `drsai threads branches` shows what it left."
    make_console().print(text, soft_wrap=True)
