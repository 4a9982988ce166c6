"""The application over an engine, with the features that come along, as `DrSai.app` makes it."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from drsai_backend.api import app
from drsai_backend.config import Settings
from drsai_backend.features.base import Host
from drsai_backend.features.extensions import Extensions, kinds_of


def create_app(engine: Any, settings: Any, access: Any, **options: Any) -> FastAPI:
    extensions = Extensions(kinds_of(Settings(), ()), Host(engine.db, Settings()))
    return app.create_app(engine, settings, access, routers=extensions.routers, **options)
