"""What `drsai serve` is given by the HTTP benchmark."""

from __future__ import annotations

from benchmarks.teams import InstantClient, our_team

_client = InstantClient()
teams = {"pair": lambda: our_team(_client, stream=True)}
