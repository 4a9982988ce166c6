"""`drsai serve` over real WebSockets: a client's library, uvicorn's protocol, and the process between them."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.cli.serving import TEAMS
from tests.support.commands import Commands


def turn(socket: ClientConnection, **message: Any) -> list[dict[str, Any]]:
    """The events of a response, or the error."""
    socket.send(json.dumps({"type": "response.create", "model": "parrot", **message}))
    events: list[dict[str, Any]] = []
    while not events or events[-1]["type"] not in ("response.completed", "error"):
        events.append(json.loads(socket.recv(timeout=30)))
    return events


def test_responses_over_a_real_websocket(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "teams.py").write_text(TEAMS)
    server = commands.start("serve", "teams.py", "--port", "0", cwd=tmp_path, env={"DRSAI_MAX_BODY_BYTES": "64KiB"})
    url = server.base_url().replace("http", "ws", 1) + "/responses"
    with pytest.raises(InvalidStatus) as refused, connect(url, origin="https://evil.example"):
        pass
    assert refused.value.response.status_code == 403
    assert json.loads(refused.value.response.body)["error"]["code"] == "origin_not_allowed"

    with connect(url) as socket:
        assert socket.response is not None
        assert "Sec-WebSocket-Extensions" not in socket.response.headers, "nothing is compressed"
        first = turn(socket, input="One.")
        numbers = [event["sequence_number"] for event in first]
        assert numbers == sorted({*numbers})
        second = turn(socket, input="Two.", previous_response_id=first[-1]["response"]["id"])
        assert second[-1]["response"]["previous_response_id"] == first[-1]["response"]["id"]
        assert turn(socket, input=[{}])[0]["status"] == 400
        assert turn(socket, input="Three.")[-1]["type"] == "response.completed"

        # Longer than a body may be: that connection ends, no other one does.
        with connect(url) as other:
            other.send(json.dumps({"type": "response.create", "model": "parrot", "input": "x" * 100_000}))
            with pytest.raises(ConnectionClosed) as closed:
                other.recv(timeout=30)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1009
        assert turn(socket, input="Four.")[-1]["type"] == "response.completed"

        server.kill(signal.SIGTERM)
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=30)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code in (1001, 1012)
    assert server.wait() == 0
    assert "Traceback" not in server.stderr
