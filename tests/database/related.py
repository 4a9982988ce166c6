"""Tables with relationships of every kind, as a user of the package would define them."""

from typing import Any, ClassVar, Optional

from sqlmodel import Field, Relationship, SQLModel

from drsai_backend.database import DatabaseManager
from drsai_backend.datamodel import Record, Thread


class Labelled(SQLModel, table=True):
    """Many items have many tags."""

    __tablename__: ClassVar[Any] = "rel_labelled"

    item_id: int | None = Field(default=None, foreign_key="rel_item.id", primary_key=True)
    tag_id: int | None = Field(default=None, foreign_key="rel_tag.id", primary_key=True)


class Owner(Record, table=True):
    __tablename__: ClassVar[Any] = "rel_owner"

    name: str
    rank: int = 0
    projects: list["Project"] = Relationship(back_populates="owner")


class Project(Record, table=True):
    __tablename__: ClassVar[Any] = "rel_project"

    name: str = Field(unique=True)
    rank: int = 0
    owner_id: int | None = Field(default=None, foreign_key="rel_owner.id")
    owner: Owner | None = Relationship(back_populates="projects")
    items: list["Item"] = Relationship(back_populates="project")
    notes: list["Remark"] = Relationship(
        back_populates="project", sa_relationship_kwargs={"cascade": "all, delete-orphan"}
    )
    plan: Optional["Plan"] = Relationship(back_populates="project")


class Item(Record, table=True):
    """May be without a project, and is a tree."""

    __tablename__: ClassVar[Any] = "rel_item"

    name: str
    rank: int = 0
    project_id: int | None = Field(default=None, foreign_key="rel_project.id")
    project: Project | None = Relationship(back_populates="items")
    tags: list["Tag"] = Relationship(back_populates="items", link_model=Labelled)
    parent_id: int | None = Field(default=None, foreign_key="rel_item.id")
    parent: Optional["Item"] = Relationship(
        back_populates="children", sa_relationship_kwargs={"remote_side": "Item.id"}
    )
    children: list["Item"] = Relationship(back_populates="parent")


class Tag(Record, table=True):
    __tablename__: ClassVar[Any] = "rel_tag"

    name: str = Field(unique=True)
    rank: int = 0
    items: list[Item] = Relationship(back_populates="tags", link_model=Labelled)


class Remark(Record, table=True):
    """Goes with its project."""

    __tablename__: ClassVar[Any] = "rel_remark"

    name: str
    rank: int = 0
    project_id: int = Field(foreign_key="rel_project.id", nullable=False)
    project: Project = Relationship(back_populates="notes")


class Plan(Record, table=True):
    """One of a project, and never without it; nothing is said of what becomes of it otherwise."""

    __tablename__: ClassVar[Any] = "rel_plan"

    name: str
    rank: int = 0
    project_id: int = Field(foreign_key="rel_project.id", nullable=False)
    project: Project = Relationship(back_populates="plan")


class Bookmark(Record, table=True):
    """Of a thread of the package; and without a cascade."""

    __tablename__: ClassVar[Any] = "rel_bookmark"

    name: str
    thread_key: int | None = Field(default=None, foreign_key="thread.id")
    thread: Thread | None = Relationship()
    owner_id: int | None = Field(default=None, foreign_key="rel_owner.id")
    owner: Owner | None = Relationship(sa_relationship_kwargs={"cascade": "", "backref": None})
    seen: list[Owner] = Relationship(
        sa_relationship_kwargs={
            "viewonly": True,
            "primaryjoin": "foreign(Owner.id) == Bookmark.owner_id",
            "uselist": True,
        }
    )


class Left(SQLModel, table=True):
    """Refers to a Right that refers to it."""

    __tablename__: ClassVar[Any] = "rel_left"

    id: int | None = Field(default=None, primary_key=True)
    right_id: int | None = Field(default=None, foreign_key="rel_right.id")
    right: Optional["Right"] = Relationship(
        sa_relationship_kwargs={"foreign_keys": "Left.right_id", "post_update": True}
    )


class Right(SQLModel, table=True):
    __tablename__: ClassVar[Any] = "rel_right"

    id: int | None = Field(default=None, primary_key=True)
    left_id: int | None = Field(default=None)
    left: Left | None = Relationship(
        sa_relationship_kwargs={
            "primaryjoin": "foreign(Right.left_id) == Left.id",
            "remote_side": "Left.id",
        }
    )


TABLES: list[type[SQLModel]] = [Owner, Project, Item, Tag, Labelled, Remark, Plan, Bookmark, Right, Left]


async def only(db: DatabaseManager, model: Any, *load: str, **filters: Any) -> Any:
    (row,) = await db.get(model, filters, load=load)
    return row


async def names(db: DatabaseManager, model: Any, **filters: Any) -> list[str]:
    return [row.name for row in await db.get(model, filters, order="name")]
