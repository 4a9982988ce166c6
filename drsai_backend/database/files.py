"""Files of users are rows, and so are their bytes: synchronous functions of a `Session`.

An upload is a content without a hash, to which chunks are added; `finish` gives it its hash and the file its name, in
one transaction. Until then nobody sees it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, NamedTuple

import sqlalchemy as sa
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from drsai_backend.database.audit import audit
from drsai_backend.database.hooks import NO_HOOKS, Hooks, apart
from drsai_backend.database.locks import alone
from drsai_backend.database.owned import of_thread, owned_by
from drsai_backend.database.pages import Listing, given, read_listed
from drsai_backend.database.runs.paths import Line, on_path
from drsai_backend.datamodel import AutoGenMessage, FileChunk, FileContent, StoredFile, Thread, table_of, utcnow
from drsai_backend.datamodel.audit import Action, Actor
from drsai_backend.datamodel.encrypted import keys_of, texts_of
from drsai_backend.datamodel.file import FILES, MessageFile, files_of
from drsai_backend.datamodel.owner import Owner, ThreadName
from drsai_backend.errors import Conflict, FilesFull, NotFound
from drsai_backend.json_types import JsonObject
from drsai_backend.page import Page

_file, _content, _chunk = table_of(StoredFile), table_of(FileContent), table_of(FileChunk)
_thread, _message = table_of(Thread), table_of(AutoGenMessage)
MOST_FILES: Final = 20_000
"""Files that a user may have: the same content again takes no room, and its row does."""
MOST_SENT: Final = 50
"""Files that users have sent in a thread that a tool is given."""
_BATCH: Final = 100
_EXPIRED: Final = 10
"""Files that one transaction deletes, with what was made of each: a hundred chunks of vector stores."""


class FileInfo(BaseModel):
    """A file of a user. Times are aware and in UTC."""

    file_id: str
    filename: str
    purpose: str
    media_type: str
    bytes: int
    created_at: datetime
    expires_at: datetime | None = Field(default=None, description="When it is deleted; null: it is kept.")


class Expired(NamedTuple):
    """The place of a file in the order in which the time of files is over."""

    over_at: datetime
    key: int


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload under way: the key of its content, and the name of its file in the folder."""

    owner: Owner
    key: int
    token: str


@dataclass(frozen=True, slots=True)
class NewFile:
    """What a file that has arrived is to be."""

    file_id: str
    filename: str
    purpose: str
    media_type: str
    expires_after: timedelta | None = None
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where the bytes of a content are: rows, or a file of the folder (`in_folder`)."""

    key: int
    token: str
    in_folder: bool


@dataclass(frozen=True, slots=True)
class Content:
    """The bytes of all files of a user that have the same."""

    place: Place
    sha256: str
    bytes: int


def begin(session: Session, owner: Owner, token: str, *, in_folder: bool) -> Upload:
    """Begin an upload."""
    values = {**owner._asdict(), "token": token, "in_folder": in_folder, "bytes": 0, "touched_at": utcnow()}
    made = session.connection().execute(sa.insert(_content).values(values).returning(_content.c.id))
    return Upload(owner, made.scalar_one(), token)


def used(session: Session, owner: Owner) -> int:
    """Return how many bytes the contents of a user have, those that are arriving included."""
    total = sa.select(sa.func.coalesce(sa.func.sum(_content.c.bytes), 0)).where(*owned_by(_content, owner))
    return int(session.connection().execute(total).scalar_one())


def arrived(session: Session, upload: Upload, start: int, data: bytes | None, size: int) -> None:
    """Bytes have arrived: `size` in all. `data` becomes a row; None: it is in the folder. Raises Conflict: the upload
    was given up."""
    change = sa.update(_content).where(*_is(upload), _content.c.sha256.is_(None))
    connection = session.connection()
    if connection.execute(change.values(bytes=size, touched_at=utcnow())).rowcount != 1:
        raise Conflict("the upload has taken too long, and was given up; try again", param="file")
    if data is not None:
        with texts_of(upload.owner.tenant):
            connection.execute(sa.insert(_chunk).values(content_key=upload.key, start=start, data=data))


def finish(session: Session, upload: Upload, new: NewFile, sha256: str, limit: int) -> tuple[FileInfo, bool]:
    """Make the file, whose bytes have all arrived; one whose `origin` is there already is that one.

    Returns:
        The file, and whether the bytes of the upload are its content: else they were there, and the upload is gone.

    Raises:
        FilesFull: the user's files have more than `limit` bytes with it, or are too many.
        Conflict: the upload was given up.
    """
    connection, owner = session.connection(), upload.owner
    alone(session, *owner)
    # Locked: whoever gives the upload up at this moment, as its run was stopped, waits, or was first.
    size = connection.execute(sa.select(_content.c.bytes).where(*_is(upload)).with_for_update()).scalar()
    if size is None:
        raise Conflict("the upload has taken too long, and was given up; try again", param="file")
    known = None if new.origin is None else by_origin(session, owner, new.origin)
    same = sa.select(_content.c.id).where(*owned_by(_content, owner), _content.c.sha256 == sha256)
    kept = known is None and connection.execute(same).first() is None
    if kept:
        done = sa.update(_content).where(*_is(upload))
        connection.execute(done.values(sha256=sha256, touched_at=utcnow()))
    else:
        connection.execute(sa.delete(_content).where(*_is(upload)))
    if known is not None:
        return known, False
    if used(session, owner) > limit:
        raise FilesFull(f"your files may have {limit} bytes in all; delete some first", param="file")
    if connection.execute(sa.select(sa.func.count()).where(*owned_by(_file, owner))).scalar_one() >= MOST_FILES:
        raise FilesFull(f"you may have {MOST_FILES} files; delete some first", param="file")
    now = utcnow()
    info = FileInfo(
        file_id=new.file_id,
        filename=new.filename,
        purpose=new.purpose,
        media_type=new.media_type,
        bytes=size,
        created_at=now,
        expires_at=None if new.expires_after is None else now + new.expires_after,
    )
    values = {**owner._asdict(), **info.model_dump(), "sha256": sha256, "origin": new.origin}
    with texts_of(owner.tenant):
        connection.execute(sa.insert(_file).values(values))
    return info, kept


def by_origin(session: Session, owner: Owner, origin: str) -> FileInfo | None:
    """The file that was made so, if there is one."""
    query = sa.select(_file).where(*owned_by(_file, owner), _file.c.origin == origin)
    row = session.connection().execute(query).mappings().first()
    return None if row is None else FileInfo.model_validate(dict(row))


def give_up(session: Session, upload: Upload) -> None:
    """Forget an upload."""
    session.connection().execute(sa.delete(_content).where(*_is(upload), _content.c.sha256.is_(None)))


def read_file(session: Session, owner: Owner, file_id: str) -> FileInfo:
    """A file of a user. Raises NotFound: they have none of that id, or its time is over."""
    return FileInfo.model_validate(dict(_row(session, owner, file_id)))


def place_of(session: Session, owner: Owner, file_id: str) -> tuple[FileInfo, Place]:
    """A file of a user, and where its bytes are. Raises as `read_file`."""
    row = _row(session, owner, file_id)
    query = sa.select(_content).where(*owned_by(_content, owner), _content.c.sha256 == row["sha256"])
    content = session.connection().execute(query).mappings().first()
    if content is None:  # its user is being deleted
        raise NotFound(f"there is no file {file_id!r}", param="file_id")
    return FileInfo.model_validate(dict(row)), Place(content["id"], content["token"], content["in_folder"])


def contents_of(session: Session, owner: Owner, after: int, limit: int) -> list[Content]:
    """A page of the contents of a user's files, by their keys, from behind the key `after`."""
    query = sa.select(_content).where(*owned_by(_content, owner), _content.c.sha256.is_not(None), _content.c.id > after)
    rows = session.connection().execute(query.order_by(_content.c.id).limit(limit)).mappings()
    return [Content(Place(row["id"], row["token"], row["in_folder"]), row["sha256"], row["bytes"]) for row in rows]


def read_chunk(session: Session, place: Place, offset: int) -> bytes:
    """The bytes of a content from `offset` to the end of the row that has it; none: there is no such row any more."""
    c = _chunk.c
    query = sa.select(c.start, c.data).join(_content).where(*_is(place), c.content_key == place.key, c.start <= offset)
    row = session.connection().execute(query.order_by(c.start.desc()).limit(1)).first()
    return b"" if row is None else bytes(row.data[offset - row.start :])


def list_files(
    session: Session,
    owner: Owner,
    *,
    after: str | None = None,
    limit: int = 10_000,
    order: Literal["asc", "desc"] = "desc",
    purpose: str | None = None,
) -> Page[FileInfo]:
    """A page of a user's files, by when they were made. Raises InvalidRequest: `after` is none of them."""
    mine, listing = sa.select(_file).where(*owned_by(_file, owner)), Listing(after=after, limit=limit, order=order)
    only = (_is_there(), *given((purpose, _file.c.purpose.__eq__)))
    page = read_listed(session, mine, _file.c.file_id, listing, *only, item="one of your files")
    return page.map(FileInfo.model_validate)


def sent_files(session: Session, name: ThreadName, most: int = MOST_SENT) -> list[MessageFile]:
    """The newest files that users have sent in a stored thread, newest first, as its messages name them: whether there
    is such a file, and whose it is, they do not say."""
    connection, config = session.connection(), _message.c.config
    head = connection.execute(sa.select(_thread.c.id, _thread.c.branch).where(*of_thread(_thread, name))).one()
    note = config["metadata"][FILES].as_string()
    is_clear = keys_of(connection.dialect) is None
    query = on_path(_message, Line(*head), "seq", note if is_clear else config)
    query = query.where(config["source"].as_string() == "user", note.is_not(None))
    found = connection.execute(query.order_by(_message.c.seq.desc()).limit(most)).scalars()
    noted = ({"metadata": {FILES: each}} for each in found) if is_clear else found
    return [file for each in noted for file in files_of(each)][:most]


def delete_file(
    session: Session, owner: Owner, file_id: str, actor: Actor, hooks: Hooks = NO_HOOKS, *, expiring: bool = False
) -> None:
    """Delete a file of a user, and its bytes, if no other file of theirs has them; `hooks` are told. Raises as
    `read_file`. `expiring`: one that is kept stays."""
    alone(session, *owner)
    row = _row(session, owner, file_id)
    if not expiring or row["expires_at"] is not None:
        _remove(session, owner, row, actor, hooks)


def delete_expired(
    session: Session, actor: Actor, hooks: Hooks = NO_HOOKS, after: Expired | None = None, limit: int = _EXPIRED
) -> tuple[int, Expired | None]:
    """Delete those of the next `limit` files behind `after` whose time is over; `hooks` are told, and may keep one.

    Returns:
        How many, and what the next call is given as `after`; None: there are none behind it.
    """
    connection, c, place = session.connection(), _file.c, (_file.c.expires_at, _file.c.id)
    terms = [c.expires_at <= utcnow()]
    if after is not None:
        terms.append(sa.tuple_(*place) > sa.tuple_(sa.literal(after.over_at, c.expires_at.type), after.key))
    found = connection.execute(sa.select(*place, c.tenant, c.user_id).where(*terms).order_by(*place).limit(limit)).all()
    count, keys = 0, [row.id for row in found]
    for owner in sorted({Owner(row.tenant, row.user_id) for row in found}):
        # Before their rows, as whoever deletes the user has it: a file may be gone by then, or is kept.
        alone(session, *owner)
        theirs = sa.select(_file).where(*owned_by(_file, owner), c.id.in_(keys), c.expires_at <= utcnow())
        for row in connection.execute(theirs).mappings().all():
            with apart(session, "a file whose time is over is kept", file_id=row["file_id"]):
                _remove(session, owner, row, actor, hooks)
                count += 1
    return count, Expired(found[-1].expires_at, found[-1].id) if len(found) == limit else None


def give_up_old(session: Session, older_than: timedelta, limit: int = _BATCH) -> int:
    """Forget up to `limit` uploads to which nothing was added for so long, and return how many."""
    old = sa.select(_content.c.id).where(_content.c.sha256.is_(None), _content.c.touched_at < utcnow() - older_than)
    keys = session.connection().execute(old.limit(limit)).scalars().all()
    if keys:
        session.connection().execute(sa.delete(_content).where(_content.c.id.in_(keys), _content.c.sha256.is_(None)))
    return len(keys)


def unknown_tokens(session: Session, tokens: list[str]) -> list[str]:
    """Return those that name no content."""
    query = sa.select(_content.c.token).where(_content.c.token.in_(tokens))
    known = set(session.connection().execute(query).scalars())
    return [token for token in tokens if token not in known]


def _remove(session: Session, owner: Owner, row: sa.RowMapping, actor: Actor, hooks: Hooks) -> None:
    connection = session.connection()
    for hook in hooks.file_deleted.values():
        hook(session, owner, row["file_id"])
    connection.execute(sa.delete(_file).where(*owned_by(_file, owner), _file.c.id == row["id"]))
    others = sa.select(sa.literal(1)).where(*owned_by(_file, owner), _file.c.sha256 == row["sha256"]).limit(1)
    if connection.execute(others).first() is None:
        gone = (*owned_by(_content, owner), _content.c.sha256 == row["sha256"])
        connection.execute(sa.delete(_content).where(*gone))
    detail: JsonObject = {"bytes": row["bytes"], "purpose": row["purpose"]}
    audit(session, actor, Action.FILE_DELETED, row["file_id"], owner, detail)


def _row(session: Session, owner: Owner, file_id: str) -> sa.RowMapping:
    query = sa.select(_file).where(*owned_by(_file, owner), _file.c.file_id == file_id, _is_there())
    row = session.connection().execute(query).mappings().first()
    if row is None:
        raise NotFound(f"there is no file {file_id!r}", param="file_id")
    return row


def _is(place: Upload | Place) -> tuple[sa.ColumnElement[bool], ...]:
    """The content at that place, by its random name, too: after a failover, another one may have its key."""
    return _content.c.id == place.key, _content.c.token == place.token


def _is_there() -> sa.ColumnElement[bool]:
    return sa.or_(_file.c.expires_at.is_(None), _file.c.expires_at > utcnow())
