"""The served teams in a process whose clock is off by as many seconds as the environment says."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta

from drsai_backend.datamodel import base
from tests.support.teams.served import *  # noqa: F403 - the same teams

_right, _off = base.utcnow, timedelta(seconds=float(os.environ["CLOCK_OFF"]))


def _utcnow() -> datetime:
    return datetime.now(UTC) + _off


for _module in [module for name, module in sys.modules.items() if name.startswith("drsai_backend")]:
    if getattr(_module, "utcnow", None) is _right:
        _module.utcnow = _utcnow  # type: ignore[attr-defined]
