"""Encrypted columns have what people, models and tools have said: where the operator has set keys for it
(`drsai_backend.database.text_keys`), as ciphertext in the row, and in clear in the program.

The keys are an attribute of the engine's dialect, so that two databases in one process have their own. Where there are
none, a column's values are converted as those of any other: no call is made for it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Final, Protocol, TypeAlias, cast

import orjson
import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine
from sqlmodel import Field, SQLModel

from drsai_backend.datamodel.base import JsonText, UTCDateTime, json_type, short_text, utcnow
from drsai_backend.json_types import JsonObject

KEYS: Final = "drsai_text_keys"
"""The attribute of a dialect with its `Keys`; None, or not there, where nothing is encrypted."""
CIPHERTEXT: Final = "$encrypted"
"""What an encrypted JSON value has under this name is its ciphertext; beside it is what stays in clear."""
_tenant: ContextVar[str] = ContextVar("drsai_text_tenant", default="")

Shadow: TypeAlias = Callable[[JsonObject], JsonObject]
"""What of a JSON object stays in clear, as SQL looks at it."""
_Convert: TypeAlias = Callable[[Any], Any]


class Keys(Protocol):
    """Encrypts and decrypts. `place` is table and column, which the ciphertext is bound to, as to the tenant."""

    @property
    def encrypts(self) -> bool:
        """Whether what is written from now on is encrypted."""
        ...

    @property
    def statements(self) -> dict[object, dict[str, Any]]:
        """What was compiled with them of each prepared statement."""
        ...

    def encrypt(self, data: bytes, place: str, tenant: str) -> bytes:
        """Return the ciphertext."""
        ...

    def encrypt_text(self, data: bytes, place: str, tenant: str) -> str:
        """Return the ciphertext as a text."""
        ...

    def decrypt(self, stored: bytes, place: str, tenant: str) -> bytes | None:
        """Return what was encrypted; None: it is in clear. Raises ConfigurationError where a key is missing, and
        DatabaseError where it was encrypted elsewhere, or for another tenant than that, if one is given."""
        ...

    def decrypt_text(self, stored: str, place: str, tenant: str) -> bytes | None:
        """`decrypt`, of a text."""
        ...


def keys_of(dialect: Dialect) -> Keys | None:
    """Return what encrypts the texts of a database; None: they are in clear."""
    return getattr(dialect, KEYS, None)


@contextmanager
def texts_of(tenant: str | None) -> Generator[None]:
    """Encrypt what is written in the block with the key of a tenant, and refuse to read what is another one's. None:
    what belongs to no tenant."""
    token = _tenant.set(tenant or "")
    try:
        yield
    finally:
        _tenant.reset(token)


class Encrypting:
    """What makes a value ready for the driver, as SQLAlchemy calls it, or with the tenant."""

    __slots__ = ("_convert", "_encrypt")

    def __init__(self, encrypt: Callable[[Any, str], Any], convert: _Convert | None) -> None:
        self._encrypt = encrypt
        self._convert = convert

    def __call__(self, value: Any) -> Any:
        return self.of(value, _tenant.get())

    def of(self, value: Any, tenant: Any) -> Any:
        """The value, encrypted for a tenant."""
        made = None if value is None else self._encrypt(value, tenant)
        return made if self._convert is None else self._convert(made)


class Encrypted(TypeDecorator[Any]):
    """Base of the types of encrypted columns.

    Args:
        place: table and column, as `run.error_message`.
    """

    impl = sa.Text
    cache_ok = True

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place

    def bind_processor(self, dialect: Dialect) -> Any:
        convert = super().bind_processor(dialect)
        keys = keys_of(dialect)
        if keys is None or not keys.encrypts:
            return convert
        return Encrypting(lambda value, tenant: self.encrypted(keys, value, tenant), convert)

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        convert: _Convert | None = super().result_processor(dialect, coltype)
        keys = keys_of(dialect)
        if keys is None:
            return convert

        def decrypt(value: Any) -> Any:
            value = value if convert is None else convert(value)
            return None if value is None else self.decrypted(keys, value, _tenant.get())

        return decrypt

    def encrypted(self, keys: Keys, value: Any, tenant: str) -> Any:
        """A value as its column holds it."""
        return keys.encrypt_text(value.encode(), self.place, tenant)

    def decrypted(self, keys: Keys, value: Any, tenant: str = "") -> Any:
        """The inverse of `encrypted`; what is in clear is left as it is. Raises as `Keys.decrypt`."""
        found = keys.decrypt_text(value, self.place, tenant)
        return value if found is None else found.decode()


class EncryptedText(Encrypted):
    """A long text."""

    cache_ok = True


class EncryptedString(Encrypted):
    """A short text."""

    impl = sa.String
    cache_ok = True


class EncryptedBytes(Encrypted):
    """Bytes."""

    impl = sa.LargeBinary
    cache_ok = True

    def encrypted(self, keys: Keys, value: Any, tenant: str) -> Any:
        return keys.encrypt(value, self.place, tenant)

    def decrypted(self, keys: Keys, value: Any, tenant: str = "") -> Any:
        found = keys.decrypt(bytes(value), self.place, tenant)
        return value if found is None else found


class EncryptedJson(Encrypted):
    """JSON, of which a `shadow` stays in clear."""

    impl = sa.JSON
    cache_ok = True

    def __init__(self, place: str, shadow: Shadow | None = None) -> None:
        TypeDecorator[Any].__init__(self, none_as_null=True)  # pyright: ignore[reportUnknownMemberType]
        self.place = place
        self.shadow = shadow

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(json_type())

    def coerce_compared_value(self, op: Any, value: Any) -> TypeEngine[Any]:
        return self.impl_instance.coerce_compared_value(op, value)

    def encrypted(self, keys: Keys, value: Any, tenant: str) -> Any:
        is_text = type(value) is JsonText
        data = value.encode() if is_text else orjson.dumps(value)
        shadow: JsonObject = {}
        if self.shadow is not None:
            shadow = self.shadow(orjson.loads(data) if is_text else value)
        return {**shadow, CIPHERTEXT: keys.encrypt_text(data, self.place, tenant)}

    def decrypted(self, keys: Keys, value: Any, tenant: str = "") -> Any:
        text: object = cast("JsonObject", value).get(CIPHERTEXT) if isinstance(value, dict) else None
        found = keys.decrypt_text(text, self.place, tenant) if isinstance(text, str) else None
        return cast("object", value) if found is None else orjson.loads(found)


class EncryptionKey(SQLModel, table=True):
    """A key with which stored texts may be encrypted: whoever opens the database must have it."""

    key_id: str = short_text(8, primary_key=True)
    since: datetime = Field(default_factory=utcnow, sa_type=UTCDateTime)


def encrypted_text(place: str, **kwargs: Any) -> Any:
    """A text column without a length limit that is encrypted where there are keys."""
    kwargs.setdefault("default", None)
    return Field(sa_type=EncryptedText(place), **kwargs)  # pyright: ignore[reportCallIssue, reportArgumentType]


def encrypted_string(place: str, **kwargs: Any) -> Any:
    """A column for a short text that is encrypted where there are keys."""
    return Field(sa_type=EncryptedString(place), **kwargs)  # pyright: ignore[reportCallIssue, reportArgumentType]


def encrypted_json(place: str, shadow: Shadow | None = None, **kwargs: Any) -> Any:
    """A JSON column, as `json_field`, that is encrypted where there are keys."""
    if "default_factory" not in kwargs:
        kwargs.setdefault("default", None)
    return Field(sa_type=EncryptedJson(place, shadow), **kwargs)  # pyright: ignore[reportCallIssue, reportArgumentType]


def encrypted_bytes(place: str, **kwargs: Any) -> Any:
    """A column of bytes that is encrypted where there are keys."""
    return Field(sa_type=EncryptedBytes(place), **kwargs)  # pyright: ignore[reportCallIssue, reportArgumentType]


def only(*names: str) -> Shadow:
    """Return the shadow that has these fields, where there are any."""

    def shadow(value: JsonObject) -> JsonObject:
        return {name: value[name] for name in names if name in value}

    return shadow
