"""The factory chooses the provider that makes the model clients of this process."""

from __future__ import annotations

from collections import Counter
from weakref import finalize

from autogen_core.models import ChatCompletionClient
from pydantic import SecretStr

from drsai_backend.access.switchboard import Switchboard
from drsai_backend.config import Settings
from drsai_backend.database import Database
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import ConfigurationError, DrSaiError
from drsai_backend.models.base import ModelProvider
from drsai_backend.models.cache.base import AnswerStore
from drsai_backend.models.cache.cache import DatabaseAnswers, ResponseCache
from drsai_backend.models.cache.in_redis import RedisAnswers
from drsai_backend.models.calls.seen_images import ImageReferences
from drsai_backend.models.demo import DemoChatCompletionClient
from drsai_backend.models.embeddings import Embeddings
from drsai_backend.models.endpoints.bounded import bounds_of
from drsai_backend.models.endpoints.continuation import ContinueRules
from drsai_backend.models.endpoints.forms import MessageForms
from drsai_backend.models.endpoints.message_rules import MessageRules
from drsai_backend.models.facts import ModelFacts, facts_of
from drsai_backend.models.fallback.asker import Asker
from drsai_backend.models.fallback.breaker import Breakers
from drsai_backend.models.fallback.client import ProfileClient
from drsai_backend.models.fallback.target import Target
from drsai_backend.models.openai import OpenAIProvider
from drsai_backend.models.profiles.load import load_profiles
from drsai_backend.models.profiles.providers import Place, Providers
from drsai_backend.models.profiles.schema import Profiles


class ModelClientFactory:
    """Makes model clients: of the given provider, else for the OpenAI-compatible endpoint of the settings, else, where
    none is set, of the offline demo model. One factory serves one event loop.

    A name that is one of the settings' profiles (`DRSAI_MODELS`) means that profile; no name means the `default` of
    their file, if it has one.

    Args:
        settings: endpoint, profiles, and what the models can do.
        provider: makes the clients of names that are no profiles.
        database: where profiles' answers are kept that are cached; None: they are not, unless Redis is set.

    Attributes:
        breakers: say which endpoints are left alone for a while.
        embeddings: those of the configured endpoint.
        switches: what operators have switched off, as this process knows it.
        forms: messages as they are sent to endpoints, in a quarter of `warm_bytes`.
        rules: which messages endpoints take; of all clients of this process, those of team factories too.
        images: where messages refer to images of tools.
        continues: how their models continue answers.

    Raises:
        ConfigurationError: a model is required, and there is only the demo model; or the file of profiles cannot be
            used.
    """

    def __init__(
        self, settings: Settings, provider: ModelProvider | None = None, database: Database | None = None
    ) -> None:
        self.forms = MessageForms(settings.warm_bytes // 4)
        self._provider = provider or (None if settings.is_demo else OpenAIProvider(settings, self.forms))
        self._demo = DemoChatCompletionClient(settings.demo_delay)
        self.embeddings = Embeddings(settings)
        self.switches = Switchboard()
        self.rules = MessageRules(settings.model_messages, bounds_of(settings), self.switches)
        self.images = ImageReferences()
        self.continues = ContinueRules(settings.model_continues)
        self._settings, self._database = settings, database
        self._clients = Providers(settings, self._provider, self.forms)
        self.profiles = self._load()
        self.breakers = Breakers()
        self._targets: dict[str, Target] = {}
        self._made: dict[str, ProfileClient] = {}
        self._former = Counter[Place]()
        """Targets of profiles that are not so any more, which runs under way have, by their connections."""
        self._seconds = settings.model_timeout
        self.cache = self._make_cache(self.profiles)
        if settings.require_model and self.is_demo:
            raise ConfigurationError(
                "a model is required and no endpoint is set: set OPENAI_API_KEY or OPENAI_BASE_URL, or leave out "
                "--require-model and DRSAI_REQUIRE_MODEL"
            )

    def _load(self) -> Profiles:
        profiles = load_profiles(self._settings.models, self._settings.profile_overrides)
        for name, profile in profiles.profiles.items():
            self._clients.check(name, profile)
        return profiles

    def reload(self) -> None:
        """Go by the profiles as the settings have them now; what is under way has its clients already. Raises
        ConfigurationError, and goes by those that it had: they cannot be used here."""
        profiles = self._load()
        self.cache = self.cache or self._make_cache(profiles)
        self.profiles = profiles
        self._made.clear()
        for name, former in [*self._targets.items()]:
            if former.profile != profiles.profiles.get(name):
                del self._targets[name]
                self._former[place := self._clients.place(former.profile)] += 1
                finalize(former, self._left, place).atexit = False

    def _left(self, place: Place) -> None:
        """The last run is over that had a former target: its connections go, unless another one has them, too."""
        self._former[place] -= 1
        here = (self._clients.place(each.profile) for each in self._targets.values())
        if not self._former[place] and place not in here:
            self._clients.leave(place)

    @property
    def is_demo(self) -> bool:
        """True when the default client is the offline demo model."""
        default = self.profiles.default
        if default is not None and self.profiles.profiles[default].provider not in ("demo", "default"):
            return False
        return self._provider is None

    def _make_cache(self, profiles: Profiles) -> ResponseCache | None:
        settings, database = self._settings, self._database
        if not any(profile.cache for profile in profiles.profiles.values()):
            return None
        store: AnswerStore
        if settings.model_cache_url is not None:
            store = RedisAnswers(settings.model_cache_url.get_secret_value())
        elif database is not None:
            store = DatabaseAnswers(database)
        else:
            return None
        return ResponseCache(store, profiles.cache)

    def describe(self) -> str:
        """Return what answers, in a few words for a console. Never holds a key or a password."""
        if (name := self.profiles.default) is not None:
            profile = self.profiles.profiles[name]
            return f"profile {name} ({profile.model or profile.provider})"
        return self._provider.describe() if self._provider is not None else "offline demo model"

    def create(self, model: str | None = None, api_key: SecretStr | None = None) -> ChatCompletionClient:
        """The client for a profile or a model. Arguments and errors as those of `ModelProvider.client`."""
        name = model if model is not None else self.profiles.default
        if name is not None and name in self.profiles.profiles:
            client = self._profile(name)
            return client if api_key is None else client.with_key(api_key)
        return self._provider.client(model, api_key) if self._provider is not None else self._demo

    def _profile(self, name: str) -> ProfileClient:
        """The client of a profile, made once."""
        found = self._made.get(name)
        if found is None:
            routed = {rule.use: self._chain(rule.use) for rule in self.profiles.profiles[name].routes}
            found = self._made[name] = ProfileClient(self._chain(name), routed, self.cache, Asker(rules=self.rules))
        return found

    def _chain(self, name: str) -> list[Target]:
        return [self._target(each) for each in (name, *self.profiles.profiles[name].fallback)]

    def _target(self, name: str) -> Target:
        found = self._targets.get(name)
        if found is None:
            made = Target(name, self.profiles.profiles[name], self._clients, self.breakers, self._seconds)
            found = self._targets[name] = made
        return found

    async def forget(self, owner: Owner) -> int:
        """Delete what the response cache keeps as a user's; returns how many answers.

        Raises:
            Exception: what the cache's store raises: they may still be there.
        """
        return await self.cache.forget(owner) if self.cache is not None else 0

    def facts(self) -> ModelFacts | None:
        """Return what the default model can do; None: its provider gives no client without a request."""
        try:
            return facts_of(self.create())
        except DrSaiError:
            return None

    async def close(self) -> None:
        """Close all connections. The factory can be used again afterwards."""
        await self.embeddings.close()
        self._made.clear()
        self._targets.clear()
        await self._clients.close()
        if self.cache is not None:
            await self.cache.close()
        if self._provider is not None:
            await self._provider.close()
