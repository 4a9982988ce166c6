"""What the latest request on a thread brought."""

from typing import Any

import sqlalchemy as sa
from sqlmodel import Field

from drsai_backend.datamodel.base import Record, json_field, long_text


class UserInput(Record, table=True):
    """The request's new messages and model parameters; one row per thread, refreshed on every request.

    `api_key` is plain text on the object and ciphertext in the row (the manager encrypts and decrypts it). It is left
    out of `repr` and of every dump.
    """

    __table_args__ = (sa.UniqueConstraint("user_id", "thread_id"),)

    user_id: str = Field(nullable=False)
    thread_id: str = Field(nullable=False)
    user_messages: list[dict[str, Any]] | None = json_field(description="The request's new messages, OpenAI shape.")
    user_last_message: str | None = long_text()
    api_key: str | None = long_text(repr=False, exclude=True)
    temperature: float | None = None
    max_tokens: int | None = None
    top_p: float | None = None
    cache_seed: int | None = Field(default=None, sa_type=sa.BigInteger, description="The request's `seed`.")
    n: int | None = None
    stream: bool | None = None
    extra_requests: dict[str, Any] | None = json_field(description="Body fields this service does not know.")
