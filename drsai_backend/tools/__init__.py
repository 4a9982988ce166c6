"""Tools for agents: the marks on them, and three that are safe to give to any agent."""

from drsai_backend.tools.base import (
    Approval,
    approval_of,
    check_approvers,
    idempotent,
    is_idempotent,
    needs_approval,
    requires_approval,
)
from drsai_backend.tools.builtin import calculator, convert_units, current_time

__all__ = [
    "Approval",
    "approval_of",
    "calculator",
    "check_approvers",
    "convert_units",
    "current_time",
    "idempotent",
    "is_idempotent",
    "needs_approval",
    "requires_approval",
]
