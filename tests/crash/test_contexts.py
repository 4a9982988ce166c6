"""A summary of a context that was made before the process is killed is not asked for again."""

from __future__ import annotations

from tests.crash.conftest import Serving
from tests.crash.test_sigkill import cut_in_the_middle, said
from tests.support.model_server import ModelServer, Reply


def test_killed_behind_a_summary(serving: Serving, model: ModelServer) -> None:
    summaries: list[str] = []

    def summarise(_: object) -> str:
        summaries.append(f"summary {len(summaries) + 1}")
        return summaries[-1]

    model.script("Summarise this.", summarise)
    model.script("You are sam.", lambda _: "sam says little")
    for number in range(3):
        serving.say("t", f"{number} " + "x" * 70, model="brief")
    assert not summaries
    model.script("You are sam.", lambda _: Reply(content="sam was cut off here" + ", and here" * 20, chunk_delay=0.15))
    cut_in_the_middle(serving, "t", "3 " + "x" * 70, at="sam was", model="brief")
    assert summaries == ["summary 1"]

    model.script("You are sam.", lambda _: "sam continues")
    serving.start()
    assert serving.settled("t")["status"] == "completed"
    assert summaries == ["summary 1"], "the model was asked twice"
    cut, repeated = [each for each in model.requests if "You are sam." in each.system][-2:]
    assert said(repeated) == said(cut)
    assert "summary 1" in str(said(repeated)[1])
    # Stored with the turn, it is there in another process.
    serving.say("t", "Last.", model="brief")
    assert summaries == ["summary 1"]
    assert "summary 1" in str(said(model.requests[-1])[1])
    assert [text[:2] for _, source, text in serving.messages("t") if source == "user"] == ["0 ", "1 ", "2 ", "3 ", "La"]
