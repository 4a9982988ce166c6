"""A graph of objects is written as upserts of rows with their relationships.

`observe_graph` follows the relationships that an object holds, as a session's `save-update` cascade does, and copies
what every row holds (in the caller's thread, before anything waits). `GraphWriter.store` compares each row with the
stored one, under a lock and by the rules of `rows`; then it puts what changed into copies of the rows in its session,
whose flush does the rest: the order of the rows, foreign keys, link tables, orphans.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from sqlalchemy import inspect
from sqlalchemy.exc import CircularDependencyError
from sqlalchemy.orm import Session, lazyload
from sqlalchemy.orm.collections import collection_adapter
from sqlalchemy.orm.interfaces import RelationshipDirection
from sqlmodel import SQLModel

from drsai_backend.database.manager.model import Values, model_info
from drsai_backend.database.manager.relations import Relation, foreign_key, held_relations, known_relations, members
from drsai_backend.database.manager.rows import Change, RowWriter, is_known, observe, refresh
from drsai_backend.database.manager.thread_parts import store_message
from drsai_backend.database.manager.threads import StoredThread, ThreadChange, ThreadIO, observe_thread, refresh_thread
from drsai_backend.datamodel import AutoGenMessage, Thread, utcnow
from drsai_backend.errors import Conflict, InvalidRequest

Outcome: TypeAlias = StoredThread | Values | None
"""What is stored of a row; None: it was not written, or deleted as an orphan."""


@dataclass(slots=True)
class Link:
    """A relationship that changed."""

    relation: Relation
    added: list[SQLModel]
    removed: list[SQLModel]
    replaces: bool
    """It was not read: whatever it holds in the database makes room for `added`."""


@dataclass(slots=True)
class Node:
    """A row of the graph."""

    row: SQLModel
    change: Change
    follows: bool
    """False: no cascade leads here, so it is referred to and not written."""
    thread: ThreadChange | None = None
    links: list[Link] = field(default_factory=list[Link])
    held: dict[str, tuple[SQLModel, ...]] = field(default_factory=dict[str, tuple[SQLModel, ...]])

    @property
    def is_changed(self) -> bool:
        """False for a row that was read and is as it was."""
        if not self.change.loaded or self.change.changed or self.links:
            return True
        whole = self.thread
        return whole is not None and (bool(whole.long) or whole.digests != whole.loaded.get("messages", []))


@dataclass(slots=True)
class Copy:
    """A row's copy in the session; `before` is the stored row, None when there was none."""

    node: Node
    before: Values | None
    item: SQLModel
    stored: StoredThread | None = None


def observe_graph(root: SQLModel, tenant: str) -> list[Node]:
    """The rows that an upsert of `root` writes or refers to; `root` first. New ones that name no tenant are `tenant`'s.

    InvalidRequest names the path of a field.
    """
    model_info(type(root))  # It raises where that is no row.
    nodes: dict[int, Node] = {}
    queue: deque[tuple[SQLModel, str, bool]] = deque([(root, "", True)])
    while queue:
        row, path, follows = queue.popleft()
        if id(row) in nodes and (nodes[id(row)].follows or not follows):
            continue
        is_named = "tenant" in row.model_fields_set and vars(row).get("tenant") is not None
        if "tenant" in vars(row) and not is_named and not is_known(row):
            setattr(row, "tenant", tenant)  # noqa: B010 - of whatever table
        try:
            node = nodes[id(row)] = _observed(row, follows)
        except InvalidRequest as error:
            if not path:
                raise
            param = f"{path}.{error.param}" if error.param else path
            raise InvalidRequest(f"{path}: {error.message}", param=param) from None
        for relation, now in held_relations(row, path) if follows else ():
            name = f"{path}.{relation.key}" if path else relation.key
            known = known_relations(row).get(relation.key)
            before = known or ()
            link = Link(relation, _without(now, before), _without(before, now), replaces=known is None)
            if relation.viewonly:
                if link.added or link.removed:
                    raise InvalidRequest(f"{name} is viewonly: change the relationship that it views", param=name)
                continue
            node.held[relation.key] = tuple(now)
            if link.added or link.removed or link.replaces:
                node.links.append(link)
            cascades = relation.cascade.save_update
            queue.extend((other, name, cascades) for other in ([*now, *link.removed] if cascades else link.added))
    return list(nodes.values())


def _observed(row: SQLModel, follows: bool) -> Node:
    if isinstance(row, Thread) and follows:
        whole = observe_thread(row)
        return Node(row, whole.row, follows, whole)
    change = observe(row)
    if not follows and change.key is None:
        raise InvalidRequest("it is new, and the relationship has no save-update cascade: upsert it first")
    return Node(row, change, follows)


def _without(rows: Iterable[SQLModel], others: Iterable[SQLModel]) -> list[SQLModel]:
    known = set(map(id, others))
    return [row for row in rows if id(row) not in known]


class GraphWriter:
    """Writes graphs: storage functions of a session, in one transaction each."""

    def __init__(self, rows: RowWriter, threads: ThreadIO) -> None:
        self._rows = rows
        self._threads = threads

    def store(self, session: Session, nodes: list[Node]) -> list[Outcome]:
        """Writes what changed. Returns what is stored then of each row. Raises as `DatabaseManager.upsert`."""
        if len(nodes) == 1 and not nodes[0].links:
            return [self._store_alone(session, nodes[0])]
        linked = {id(row) for node in nodes for link in node.links for row in (*link.added, *link.removed)}
        active = [n for n in nodes if n is nodes[0] or (n.follows and n.is_changed) or id(n.row) in linked]
        with session.no_autoflush:
            # In one order, or two that overlap could wait for each other.
            copies = {id(node.row): self._copy(session, node) for node in sorted(active, key=_lock_order)}
            _refuse_doubles(copies.values())
            session.add_all(copy.item for copy in copies.values() if copy.before is None)
            linker = _Linker(copies)
            for node in active:
                for link in node.links:
                    linker.apply(copies[id(node.row)].item, link)
            linker.check()
        try:
            session.flush()
        except CircularDependencyError:
            name = type(nodes[0].row).__name__
            text = f"the rows of the {name} refer to each other in a circle: map a relationship with post_update=True"
            raise InvalidRequest(text, param=name) from None
        return [self._outcome(session, copies[id(node.row)]) if id(node.row) in copies else None for node in nodes]

    def _store_alone(self, session: Session, node: Node) -> StoredThread | Values:
        if node.thread is not None:
            return self._threads.store(session, node.thread)
        if isinstance(node.row, AutoGenMessage):
            return store_message(session, self._rows, node.change)
        return self._rows.store(session, node.change)[0]

    def _copy(self, session: Session, node: Node) -> Copy:
        change, info = node.change, node.change.info
        writes_itself = isinstance(node.row, Thread | AutoGenMessage)
        whole = self._store_alone(session, node) if node.follows and writes_itself else None
        before = self._rows.lock(session, change)
        if before is not None:
            key = tuple(before[name] for name in info.primary_key)
            # Not what is eager by the mapping: PostgreSQL would lock it, too, or refuse to.
            item = session.get_one(info.model, key, options=[lazyload("*")])
            if node.follows and not writes_itself and (fields := self._rows.differences(change, before)):
                for name, value in fields.items():
                    setattr(item, name, self._rows.sealed(info.fields[name], value))
                _touch(item)
            return Copy(node, before, item, whole if isinstance(whole, StoredThread) else None)
        if change.loaded or not node.follows:
            raise Conflict(f"the {info.model.__name__} was deleted since it was read")
        item = info.model(**{name: self._rows.sealed(info.fields[name], v) for name, v in change.initial.items()})
        _touch(item)
        return Copy(node, None, item)

    def _outcome(self, session: Session, copy: Copy) -> Outcome:
        change, before = copy.node.change, copy.before
        if copy.stored is not None:
            return copy.stored
        state = inspect(copy.item)
        if state.deleted or state.identity is None:
            return None
        values = self._rows.read(session, change.info, state.identity)
        if before is None or change.loaded is None:
            return values
        for name, seen in change.loaded.items():
            # What the flush has written by itself: foreign keys.
            item = change.info.fields[name]
            there = item.fingerprint(before[name])
            automatic = change.info.touches and name == "updated_at"
            if there != seen and item.fingerprint(values[name]) != there and not automatic:
                raise Conflict(f"{name} was changed by somebody else since it was read", param=name)
        return values


class _Linker:
    """Puts changed relationships into the copies."""

    def __init__(self, copies: dict[int, Copy]) -> None:
        self._copies = copies
        self._filled: set[tuple[int, str]] = set()
        """Foreign keys that will have a value, by the copy and the field's name."""
        self._emptied: list[tuple[SQLModel, str, str]] = []
        """Required ones that will have none: the copy, the field, the relationship."""

    def apply(self, here: SQLModel, link: Link) -> None:
        relation = link.relation
        added = [self._copies[id(row)].item for row in link.added]
        removed = {id(self._copies[id(row)].item) for row in link.removed}
        to_many = relation.direction is RelationshipDirection.ONETOMANY
        if relation.direction is not RelationshipDirection.MANYTOMANY:
            owners = [item if to_many else here for item in added]
            self._filled |= {(id(owner), name) for owner in owners for name in foreign_key(relation, owner)}
        there = members(getattr(here, relation.key), relation)
        joining = _without(added, there)
        leaving = [item for item in there if id(item) in removed or (link.replaces and item not in added)]
        if not relation.uselist:
            if any(item not in added and item not in leaving for item in there) and to_many:
                raise Conflict(f"{relation.key} was changed by somebody else since it was read", param=relation.key)
            setattr(here, relation.key, added[0] if added else None)
        else:
            adapter = collection_adapter(getattr(here, relation.key))
            for item in leaving:
                adapter.remove_with_event(item)
            for item in joining:
                adapter.append_with_event(item)
        if to_many:
            if not relation.cascade.delete_orphan:
                self._emptied += [
                    (item, name, relation.key)
                    for item in leaving
                    for name in foreign_key(relation, item)
                    if not model_info(type(item)).fields[name].column.nullable
                ]
            for item in (*leaving, *joining):
                _touch(item)
        elif relation.direction is RelationshipDirection.MANYTOONE and (leaving or joining):
            _touch(here)

    def check(self) -> None:
        """Refuses what the database would refuse without a word about the field."""
        for item, name, relation in self._emptied:
            if (id(item), name) not in self._filled:
                raise InvalidRequest(
                    f"{relation}: a {type(item).__name__} cannot be without {name}: give it to another one, delete it, "
                    "or map the relationship with cascade='all, delete-orphan'",
                    param=relation,
                )
        for copy in self._copies.values():
            info = copy.node.change.info
            for name, item in info.fields.items() if copy.before is None else ():
                given = getattr(copy.item, name) is not None or (id(copy.item), name) in self._filled
                if not given and name not in info.primary_key and item.is_required:
                    raise InvalidRequest(f"{name} of the {info.model.__name__} is required", param=name)


def _touch(item: SQLModel) -> None:
    if model_info(type(item)).touches:
        setattr(item, "updated_at", utcnow())  # noqa: B010 - not every row has it


def _lock_order(node: Node) -> tuple[bool, str, str]:
    # Threads and messages first: their functions write at once, the others' rows may refer to them.
    return not isinstance(node.row, Thread | AutoGenMessage), node.change.info.table.name, repr(node.change.key)


def _refuse_doubles(copies: Iterable[Copy]) -> None:
    """Two objects for one row are fine as long as only one of them says what becomes of it."""
    said: set[int] = set()
    for copy in copies:
        if copy.node.follows and (copy.node.change.changed or copy.node.links):
            if id(copy.item) in said:
                name = copy.node.change.info.model.__name__
                raise InvalidRequest(f"two changed objects stand for the same row of {name}", param=name)
            said.add(id(copy.item))


def refresh_graph(nodes: list[Node], stored: list[Outcome]) -> None:
    """Gives the objects the stored values, and remembers what their relationships hold."""
    for node, outcome in zip(nodes, stored, strict=True):
        if not node.follows:
            continue
        if isinstance(outcome, StoredThread):
            if isinstance(node.row, Thread) and node.thread is not None:
                refresh_thread(node.row, node.thread, outcome)
        elif outcome is not None:
            refresh(node.row, node.change, outcome)
        known_relations(node.row).update(node.held)
