"""JSON as the database layer reads and writes it."""

from __future__ import annotations

from typing import Any

import orjson


def dump_json(value: Any) -> str:
    """JSON text of a value, as SQLAlchemy hands it to the driver."""
    return orjson.dumps(value).decode()


load_json = orjson.loads
