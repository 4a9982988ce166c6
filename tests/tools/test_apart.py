"""Programs that read foreign data in processes of their own, and die there."""

from __future__ import annotations

from pathlib import Path

import pytest

from drsai_backend.tools.apart import ApartError, apart

# It writes down that it was given something, and dies of `kill`.
PROGRAM = """
import os, signal

def main(data):
    folder, given = data.decode().split("|")
    with open(os.path.join(folder, given), "a") as file:
        file.write(".")
    if given == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    return given.encode()
"""


async def test_what_a_program_died_of_twice_is_not_given_to_it_again(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    async def given(what: str) -> bytes:
        return await apart(program, f"{tmp_path}|{what}".encode(), seconds=20, memory=1 << 30, most=100)

    for _ in range(4):
        with pytest.raises(ApartError, match="it ended without a result") as raised:
            await given("kill")
        assert not raised.value.late
        assert await given("live") == b"live"
    assert ((tmp_path / "kill").read_text(), (tmp_path / "live").read_text()) == ("..", "....")
