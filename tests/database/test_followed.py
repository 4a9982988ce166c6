"""What a process follows is heard soon after another one has changed it, whatever becomes of the rest."""

from __future__ import annotations

from typing import Final

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database import DatabaseManager
from drsai_backend.database.followed import Followed, Watch
from tests.jobs.looker import until

_VERSIONS: Final = sa.select(sa.literal(1))


class _Rows:
    """Rows that change when they are told to. `heard` are those that were understood."""

    def __init__(self, unknown: object = None) -> None:
        self.version, self.heard, self._unknown = 0, list[int](), unknown

    def read(self, session: Session, known: object) -> tuple[object, int | None]:
        session.execute(_VERSIONS)
        return self.version, None if known == self.version else self.version

    def hear(self, found: int) -> None:
        if found == self._unknown:
            raise KeyError(found)
        self.heard.append(found)


async def test_one_that_does_not_understand_keeps_no_other_from_hearing(
    db: DatabaseManager, caplog: pytest.LogCaptureFixture
) -> None:
    watch, first, second = Watch(db.database), _Rows(unknown=1), _Rows()
    followed = [Followed(db.database, each.read, each.hear, "rows") for each in (first, second)]
    for each in followed:
        await watch.begin(each)
    first.version = second.version = 1
    await until(lambda: second.heard == [0, 1])
    first.version = 2
    await until(lambda: first.heard == [0, 2])
    assert caplog.text.count("changes of rows are not understood") == 1
    for each in followed:
        await watch.end(each)
    second.version = 2
    assert second.heard == [0, 1]
