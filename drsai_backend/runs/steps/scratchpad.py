"""The scratchpad has the steps of a run as the text of a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from drsai_backend.estimates import estimate_text
from drsai_backend.runs.steps.views import RunStep, cut

LONGEST: Final = 4000
"""Characters of one observation, unless it is said otherwise."""


def scratchpad(
    steps: Sequence[RunStep],
    *,
    max_tokens: int | None = None,
    max_characters: int | None = None,
    max_observation: int = LONGEST,
) -> str:
    """Steps as a model is told of them: `Thought:`, `Action:`, `Action Input:` and `Observation:` of each call of a
    tool, `Answer:` of what was said, in their order, a blank line between two steps.

    The bounds keep the newest steps: the first line says how many are left out before them. A newest step that is too
    long by itself is cut at its end.

    Args:
        max_tokens: of the whole, estimated as UTF-8 bytes / 4; None: no bound.
        max_characters: of the whole; None: no bound.
        max_observation: characters of one observation; of a longer one the beginning is kept, with a note.

    Raises:
        ValueError: a bound is less than 1.
    """
    for name, bound in (("max_tokens", max_tokens), ("max_characters", max_characters)):
        if bound is not None and bound < 1:
            raise ValueError(f"{name} is at least 1")

    def fits(text: str) -> bool:
        return (max_tokens is None or estimate_text(text) <= max_tokens) and (
            max_characters is None or len(text) <= max_characters
        )

    kept = ""
    for number in range(len(steps) - 1, -1, -1):
        text = _text(steps[number], max_observation)
        longer = f"{text}\n\n{kept}" if kept else text
        if not fits(_after(number, longer)):
            return _after(number + 1, kept) if kept else _fitting(text, max_tokens, max_characters)
        kept = longer
    return kept


def _after(left_out: int, text: str) -> str:
    return text if not left_out else f"({left_out} earlier step{'s' * (left_out > 1)} left out)\n\n{text}"


def _fitting(text: str, max_tokens: int | None, max_characters: int | None) -> str:
    """The beginning of a text that is within the bounds."""
    text = text[:max_characters]
    return text if max_tokens is None else text.encode()[: 4 * max_tokens].decode(errors="ignore")


def _text(step: RunStep, longest: int) -> str:
    lines = {
        "Thought": step.thought,
        "Action": step.tool,
        "Action Input": step.input,
        "Observation": None if step.observation is None else cut(step.observation, longest),
        "Answer": step.text,
        "Error": step.error,
    }
    return "\n".join(f"{label}: {text}" for label, text in lines.items() if text is not None)
