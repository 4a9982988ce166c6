"""What is stored of a request for a response: in the transaction that stores the request itself, so that neither is
there without the other, whatever dies in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drsai_backend.api.openai.responses.request import items
from drsai_backend.api.openai.responses.stored.places import Continued, PlaceMoved, check_unmoved
from drsai_backend.database.responses import save_response, take_items
from drsai_backend.json_types import JsonObject

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from drsai_backend.database.runs.values import StoredInput


@dataclass(eq=False)
class Storing:
    """What a request at that place stores besides itself. `record`: what it tells again (`inputs.record_of`); `given`
    makes its items, kept where no messages of its own are stored. `row_id`: the row that it has got; None: none yet, or
    its run was there already."""

    place: Continued
    record: JsonObject
    given: Callable[[], Sequence[JsonObject]]
    row_id: str | None = field(default=None, init=False)

    def __call__(self, session: Session, stored: StoredInput) -> None:
        """Raises PlaceMoved."""
        check_unmoved(self.place, stored.head)
        if self.place.waiting and not take_items(session, stored.key, self.place.waiting):
            raise PlaceMoved
        record: JsonObject = {**self.record, "speakers": stored.speakers}
        if stored.is_queued or stored.row_id != stored.run_id:
            part = stored.row_id.removeprefix(items.RUN)
            record["given"] = [
                each if "id" in each else {"id": f"{_PREFIXES[each['type']]}_{part}_i{index}", **each}
                for index, each in enumerate(self.given())
            ]
        save_response(session, stored.key, stored.row_id, record)
        self.row_id = stored.row_id


_PREFIXES = {"message": "msg", "function_call_output": "fco"}
