"""What is read of a run costs as much as the run, however much was said on its thread before and afterwards."""

from __future__ import annotations

import re

from sqlalchemy.orm import Session

from drsai_backend.access.principal import Principal
from drsai_backend.database.runs.log import read_log
from drsai_backend.runs.steps.queries import list_steps
from drsai_backend.runs.threads.queries import last_text
from tests.support.plans import explained
from tests.support.stepping import looker
from tests.support.threads import Make, head_of


async def test_what_is_read_of_a_run_is_among_its_messages(make: Make) -> None:
    drsai = await make({"crew": looker(2)})
    run_id = str((await drsai.run("crew", "Look.", thread_id="t")).run_id)
    await drsai.run("crew", "Look again.", thread_id="t")
    key, owner = (await head_of(drsai)).key, Principal().owner

    def look(session: Session) -> list[str]:
        with explained(session) as plans:
            for order in ("asc", "desc"):
                assert len(list_steps(session, owner, run_id, None, 20, order).items) == 3
            assert last_text(session, owner, run_id) == "done after 2"
            page = read_log(session, key, seq=0, epoch=0, run_id=run_id)
            assert page is not None
            assert {each[1] for each in page.messages} == {run_id}
        return [plan for plan in plans if "autogenmessage" in plan]

    plans = await drsai.database.read(look)
    assert len(plans) == 6
    for plan in plans:
        # Where the run's row is read beside it, PostgreSQL looks in small tables for either first.
        assert re.search(r"seq>\? AND seq<\?|Index Cond: .*seq >= .*seq <= |seq <= CASE", plan), plan
