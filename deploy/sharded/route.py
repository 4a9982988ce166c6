"""The router's directory says in which database each tenant is, and whose each key is. This writes it, into files and
into the router that runs, so that nothing is reloaded; and it moves a tenant while all others are served.

    route.py keys [--every SECONDS]   whose each key is, as the databases say it; again and again
    route.py put TENANT SHARD         in which database a tenant is
    route.py move TENANT FROM TO      refuse it, wait until its requests and runs are over, move it, and serve it there

In the environment:

    SHARDS   databases by the names that haproxy.cfg has for their servers: one=postgresql://... two=postgresql://...
    ROUTER   the folder of tenants.map, keys.map and router.sock; else /var/lib/router

It runs where drsai is installed, and on the router's machine.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa

from drsai_backend.database.migrations import connecting
from drsai_backend.datamodel import ApiKey, Thread, table_of

SHARDS = dict(each.split("=", 1) for each in os.environ["SHARDS"].split())
ROUTER = Path(os.environ.get("ROUTER", "/var/lib/router"))
MOVING = "moving"
"""Where nobody is served: haproxy.cfg says what clients are told."""
say = partial(print, flush=True)
_AT_ONCE = 4
"""Lines in one command to the router: a name has up to 3 kB, and its buffer 16."""


def tell(command: str) -> str:
    """Tell the router a command, and return what it answers."""
    with socket.socket(socket.AF_UNIX) as router:
        router.connect(str(ROUTER / "router.sock"))
        router.sendall(f"{command}\n".encode())
        return b"".join(iter(partial(router.recv, 65536), b"")).decode().strip()


def publish(name: str, lines: Sequence[str]) -> None:
    """Replace a map: the file that the router reads when it starts, and what it knows now, all of it at once."""
    path = ROUTER / name
    new = path.with_suffix(".new")
    new.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    new.replace(path)
    entries = [line for line in lines if line and not line.startswith("#")]
    version = tell(f"prepare map {path}").rpartition(" ")[2]
    parts = ["\n".join(entries[at : at + _AT_ONCE]) for at in range(0, len(entries), _AT_ONCE)]
    for command in [*(f"add map @{version} {path} <<\n{part}\n" for part in parts), f"commit map @{version} {path}"]:
        if refused := tell(command):
            raise SystemExit(f"the router does not take {name}: {refused}")


@contextmanager
def locked() -> Iterator[None]:
    """One at a time writes the directory."""
    with (ROUTER / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def keys(every: float | None = None) -> None:
    """Write whose each key is. Databases are read twice: a tenant that moves meanwhile is met in one of them."""
    key = table_of(ApiKey)
    while True:
        found = dict[str, str]()
        with locked():
            for url in [*SHARDS.values()] * 2:
                with connecting(url, write=False) as connection:
                    found.update(connection.execute(sa.select(key.c.digest, key.c.tenant)).all())
            publish("keys.map", [f"{digest} {quote(tenant, safe='')}" for digest, tenant in sorted(found.items())])
        if every is None:
            return
        time.sleep(every)


def put(tenant: str, shard: str) -> None:
    """Write in which database a tenant is."""
    name = quote(tenant, safe="")
    with locked():
        others = (ROUTER / "tenants.map").read_text(encoding="utf-8").splitlines()
        publish("tenants.map", [*(line for line in others if line.split(" ")[0] != name), f"{name} {shard}"])


def under_way(tenant: str) -> int:
    """Return how many requests of a tenant the router waits for."""
    found = re.search(r"conn_cur=(\d+)", tell(f"show table tenants key {quote(tenant, safe='')}"))
    return 0 if found is None else int(found[1])


def has(shard: str, tenant: str) -> bool:
    """Return whether a database has a tenant."""
    with connecting(SHARDS[shard], write=False) as connection:
        theirs = (sa.select(table.c.id).where(table.c.tenant == tenant) for table in map(table_of, (ApiKey, Thread)))
        return any(connection.execute(query.limit(1)).first() for query in theirs)


def move(tenant: str, source: str, target: str) -> None:
    """Move a tenant. Whatever ends this: do it again, and it goes on."""
    keys()  # or one that was made just now would not be refused
    put(tenant, MOVING)
    say(f"{tenant} is refused by the router, until it is in {target}")
    while many := under_way(tenant):
        say(f"waiting for {many} requests of {tenant}")
        time.sleep(1)
    command = ["drsai_backend", "tenants", "move", "--yes", tenant, SHARDS[source], SHARDS[target]]
    while True:
        done = subprocess.run([sys.executable, "-m", *command], stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode == 0:
            break
        said = " ".join(done.stderr.split())
        say(said)
        if "the source has nothing of the tenant" in said and has(target, tenant):
            break  # it was moved when this was cut off
        if not re.search(r"is not over: wait|nothing is lost, repeat this", said):
            raise SystemExit(f"{tenant} is not moved, and refused until it is: do this again, or `put` it where it is")
        time.sleep(1)
    put(tenant, target)
    say(f"{tenant} is served by {target}")


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description="The router's directory.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("keys").add_argument("--every", type=float, metavar="SECONDS")
    for verb, shards in (("put", {"shard": [*SHARDS, MOVING]}), ("move", {"source": [*SHARDS], "target": [*SHARDS]})):
        verbs.add_parser(verb).add_argument("tenant")
        for name, choices in shards.items():
            verbs.choices[verb].add_argument(name, choices=choices)
    given = vars(parser.parse_args())
    {"keys": keys, "put": put, "move": move}[given.pop("verb")](**given)


if __name__ == "__main__":
    main()
