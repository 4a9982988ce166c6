"""A task tree, a plan that a person checks, and stored component configs."""

from typing import Any

import sqlalchemy as sa
from sqlmodel import Field

from drsai_backend.datamodel.base import Record, json_field, long_text


class SingleTask(Record, table=True):
    """One task: a node of a tree (`is_node_task`, `node_task_id`) and a link of a chain (`previous_id`, `next_id`)."""

    __table_args__ = (sa.UniqueConstraint("user_id", "thread_id", "task_id"),)

    user_id: str = Field(nullable=False)
    thread_id: str = Field(nullable=False)
    task_id: str = Field(nullable=False)
    is_node_task: bool = False
    node_task_id: str | None = None
    previous_id: str | None = None
    next_id: str | None = None
    content: str | None = long_text()
    files: list[dict[str, Any]] | None = json_field()
    task_messages: list[dict[str, Any]] | None = json_field()
    meta: dict[str, Any] | None = json_field()


class Tasks(Record, table=True):
    """A list of tasks that belong together."""

    __table_args__ = (sa.UniqueConstraint("user_id", "thread_id", "tasks_id"),)

    user_id: str = Field(nullable=False)
    thread_id: str = Field(nullable=False)
    tasks_id: str = Field(nullable=False)
    content: str | None = long_text()
    files: list[dict[str, Any]] | None = json_field()
    tasks: list[dict[str, Any]] | None = json_field()
    meta: dict[str, Any] | None = json_field()


class PlanCheck(Record, table=True):
    """A plan waiting for, or carrying, a person's verdict."""

    __table_args__ = (sa.Index(None, "user_id", "thread_id"),)

    user_id: str = Field(nullable=False)
    thread_id: str = Field(nullable=False)
    task: str | None = long_text()
    steps: list[dict[str, Any]] | None = json_field()
    session_id: str | None = None


class AgentJson(Record, table=True):
    """An AutoGen component config (`component.dump_component()`), stored for a user."""

    __table_args__ = (sa.Index(None, "user_id"),)

    user_id: str = Field(nullable=False)
    component: dict[str, Any] = json_field(default_factory=dict, nullable=False)
