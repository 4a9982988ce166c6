"""The asker is for whom a profile's client asks."""

from __future__ import annotations

from dataclasses import dataclass, field

from drsai_backend.datamodel.owner import Owner
from drsai_backend.files import Files
from drsai_backend.models.endpoints.message_rules import MessageForm, MessageRules
from drsai_backend.models.profiles.schema import Profile


@dataclass(frozen=True, slots=True)
class Asker:
    """Whose request it is, and what their client was told.

    Attributes:
        owner: whose answers are found in the cache, by tenant, and whose the new ones are; their tenant's switches
            count. None: nothing is cached.
        seed: another seed has answers of its own; None: the profile's.
        form: which messages the model takes; None: the profile's word, or what is known of its endpoint.
        rules: what is known of endpoints in this process.
        files: has the recordings of its messages, for models that hear; None: none are passed on.
        thread_owner: whose files those may be besides; None: the thread is the owner's.
        caches: whether answers may come out of the cache, and be kept there.
    """

    owner: Owner | None = None
    seed: int | None = None
    form: MessageForm | None = None
    rules: MessageRules = field(default_factory=MessageRules)
    files: Files | None = None
    thread_owner: Owner | None = None
    caches: bool = True

    def seed_of(self, profile: Profile) -> int:
        """The seed of a request to a profile."""
        if self.seed is not None:
            return self.seed
        return profile.cache.seed if profile.cache is not None else 0
