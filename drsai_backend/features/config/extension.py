"""`Config` is the feature, `drsai.config.set({"max_turns": 30})`: what is stored for the environment of a process holds
there within two seconds."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import orjson
from pydantic import JsonValue

from drsai_backend import log_context
from drsai_backend.config.live import LiveSettings, check_live, read_environment, read_live
from drsai_backend.database.followed import Followed
from drsai_backend.datamodel.audit import PROGRAM, Actor
from drsai_backend.errors import ConfigurationError, Conflict, InvalidRequest
from drsai_backend.features.base import FollowedExtension
from drsai_backend.features.config import rows
from drsai_backend.models.prices import load_prices
from drsai_backend.models.profiles.load import load_profiles

if TYPE_CHECKING:
    from drsai_backend.features.base import Host
    from drsai_backend.features.config.base import ConfigInfo
    from drsai_backend.page import Page

log = logging.getLogger("drsai.settings")

_LARGEST: Final = 256 * 1024
"""Characters of what a call sets, as JSON."""


class Config(FollowedExtension):
    """Settings that are stored, for an environment each, and hold without a restart where `DRSAI_ENVIRONMENT` is it."""

    name = "config"

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._live = LiveSettings(host.settings)
        changed = rows.changed_of(host.settings.environment)
        self._followed = Followed(host.database, changed, self._hear, self.name)

    async def get(self, environment: str | None = None, version: int | None = None) -> ConfigInfo:
        """Return what is stored for an environment; nothing may be.

        Args:
            environment: its name; None: that of this process.
            version: an older version; None: the one that holds.

        Raises:
            NotFound: there is no such version.
        """
        name = self._environment(environment)
        return await self.host.database.read(partial(rows.get_config, environment=name, version=version))

    async def list(self, after: str | None = None, limit: int = 20) -> Page[ConfigInfo]:
        """Return a page of what is stored for each environment, by name. Raises InvalidRequest where `after` is no
        `next`."""
        return await self.host.database.read(partial(rows.list_configs, after=after, limit=limit))

    async def set(
        self,
        values: Mapping[str, object],
        environment: str | None = None,
        *,
        version: int | None = None,
        actor: Actor = PROGRAM,
    ) -> ConfigInfo:
        """Store values of settings beside those that are stored. All servers and workers of the environment go by them
        within two seconds.

        Args:
            values: by the names of `Settings`, each as it is or as its variable has it; None, or an empty text: it is
                stored no more.
            environment: its name; None: that of this process.
            version: the version that is replaced, 0 for none; None: whichever it is.
            actor: who does it.

        Raises:
            InvalidRequest: a setting does not exist, cannot have that value, or is read at the start alone; `param` is
                its name. Nothing is stored.
            Conflict: what is stored is not `version`.
        """
        name = self._environment(environment)
        for each in values:
            check_live(each)
        read = {each: None if value in (None, "") else self._read(each, value) for each, value in values.items()}
        made = await self.host.database.act(
            partial(rows.set_config, environment=name, said=read, expected=version, actor=actor)
        )
        await self._followed.refresh()
        return made

    async def history(
        self, environment: str | None = None, after: str | None = None, limit: int = 20
    ) -> Page[ConfigInfo]:
        """Return a page of the versions of an environment, newest first. Raises NotFound: it has none, and
        InvalidRequest where `after` is no `next`."""
        name = self._environment(environment)
        read = partial(rows.list_versions, environment=name, after=after, limit=limit)
        return await self.host.database.read(read)

    async def roll_back(
        self, to: int, environment: str | None = None, *, version: int | None = None, actor: Actor = PROGRAM
    ) -> ConfigInfo:
        """Have all settings of an older version hold again, as a new version. Arguments as those of `set`.

        Raises:
            NotFound: there is no version `to`.
            Conflict: what is stored is not `version`.
        """
        name = self._environment(environment)
        made = await self.host.database.act(
            partial(rows.roll_back, environment=name, to=to, expected=version, actor=actor)
        )
        await self._followed.refresh()
        return made

    async def delete(self, environment: str, *, version: int | None = None, actor: Actor = PROGRAM) -> None:
        """Delete all that was stored for an environment, its history included. Processes of it, if there are any, go by
        their variables within two seconds. Arguments as those of `set`.

        Raises:
            InvalidRequest: there can be none of that name.
            NotFound: nothing is stored for it.
            Conflict: it is that of this process, or what is stored is not `version`.
        """
        name = read_environment(environment)
        if name == self.host.settings.environment:
            text = f"environment {name!r} is in use here (DRSAI_ENVIRONMENT): unset its settings instead"
            raise Conflict(text, param="environment")
        await self.host.database.act(partial(rows.delete_config, environment=name, expected=version, actor=actor))

    def _environment(self, name: str | None) -> str:
        """Return the environment that is meant. Raises InvalidRequest: it cannot be one."""
        return self.host.settings.environment if name is None else read_environment(name)

    def _read(self, name: str, value: object) -> JsonValue:
        """Return a value as it is stored. Raises InvalidRequest: it cannot be."""
        read, settings = read_live(name, value), self.host.settings
        try:
            text = json.dumps(read, allow_nan=False)
            if len(text) > _LARGEST:
                raise InvalidRequest(f"{name}: is longer than {_LARGEST} characters", param=name)
            if "\\u0000" in text or not orjson.dumps(read):
                raise ValueError
            if name == "price_overrides":
                load_prices(settings.prices, cast("Sequence[Mapping[str, object]]", read))
            elif name == "profile_overrides":
                load_profiles(settings.models, cast("Mapping[str, object]", read))
        except (ValueError, TypeError):
            raise InvalidRequest(f"{name}: has a number or a character that cannot be stored", param=name) from None
        except ConfigurationError as error:
            raise InvalidRequest(f"{name}: {error.message}", param=name) from None
        return read

    def _hear(self, stored: Mapping[str, JsonValue]) -> None:
        changed = self._live.take({name: value for name, value in stored.items() if self._is_usable(name, value)})
        if not changed:
            return
        log.info("settings have changed: %s", ", ".join(sorted(changed)))
        if "log_level" in changed:
            log_context.set_level(self.host.settings.log_level)
        for name, reload in (
            ("price_overrides", self.host.reload_prices),
            ("profile_overrides", self._reload_profiles),
        ):
            try:
                if name in changed:
                    reload()
            except ConfigurationError as error:
                log.error("what %s says does not hold here: %s", name, error.message)
        self.host.settings_changed(changed)

    def _is_usable(self, name: str, value: JsonValue) -> bool:
        """Whether a stored value can hold. What a newer release has stored and this one does not take is told in the
        log, and passed over."""
        try:
            self._read(name, value)
        except InvalidRequest as error:
            log.warning("a stored setting is passed over: %s", error.message)
            return False
        return True

    def _reload_profiles(self) -> None:
        if self.host.models is not None:
            self.host.models.reload()
