"""The format string of a stored message is anybody's: a file that is imported has it."""

from __future__ import annotations

import pytest

from drsai_backend.teams.messages import content_text


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{a} and {b!r}: {b:>5} {{}}", "1 and 'x':     x {}"),
        ("{a:.2f} at 12:2024", "1.00 at 12:2024"),
        ("{a:>100000000}", '{"a":1,"b":"x"}'),
        ("{a:{b}}", '{"a":1,"b":"x"}'),
        ("{a.__init__}", '{"a":1,"b":"x"}'),
        ("{b[0]}", '{"a":1,"b":"x"}'),
        ("{a!r:>100000000}", '{"a":1,"b":"x"}'),
    ],
)
def test_what_it_may_say(template: str, text: str) -> None:
    assert content_text({"a": 1, "b": "x"}, template) == text
