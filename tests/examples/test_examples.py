"""Every example runs as it is, and does what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from drsai_backend import DrSai, RunStatus
from drsai_backend.config import Settings
from drsai_backend.definitions import DefinitionPolicy, load
from drsai_backend.definitions.convert import convert_file
from drsai_backend.teams.registry import load_teams
from tests.examples.processes import ROOT, run_python
from tests.support.commands import Commands

EXAMPLES = ROOT / "examples"


def run(commands: Commands, name: str, directory: Path) -> str:
    return run_python(commands, [str(EXAMPLES / name)], directory)


def test_team_in_code(commands: Commands, tmp_path: Path) -> None:
    first = run(commands, "team_in_code.py", tmp_path)
    assert "The tides: worth a closer look" in first
    assert "Version 2" in first
    assert re.search(r"The last word: .*APPROVE\ncompleted, \d+ tokens, thread tides", first)

    again = run(commands, "team_in_code.py", tmp_path)
    tokens = [int(re.search(r"(\d+) tokens", output)[1]) for output in (first, again)]  # type: ignore[index]
    assert tokens[1] > tokens[0], "the second process remembers the first, so its prompts are longer"


def test_resume_in_second_process(commands: Commands, tmp_path: Path) -> None:
    lines = run(commands, "resume_in_second_process.py", tmp_path).splitlines()
    processes = {re.match(r"\[process (\d+)\]", line)[1] for line in lines}  # type: ignore[index]
    assert len(processes) == 2
    assert lines[-1].endswith("Your name is Ada.")


def test_tools(commands: Commands, tmp_path: Path) -> None:
    output = run(commands, "tools.py", tmp_path)
    assert "count_words says: 6" in output
    assert "ToolCallExecutionEvent" in output
    assert output.endswith("reminder-1: water the plants\n")


def test_notes_extension(commands: Commands, tmp_path: Path) -> None:
    """The folder `notes` beside it is tested in tests/features."""
    assert run(commands, "notes_extension.py", tmp_path).splitlines() == [
        "The tide turns at noon.",
        "1 run has ended",
        "deleted: 1 note; 0 left",
    ]


def test_ask_a_pdf(commands: Commands, tmp_path: Path) -> None:
    assert run(commands, "ask_a_pdf.py", tmp_path).splitlines() == [
        "read      completed",
        "question  Who approves flights?",
        "answer    The treasurer approves flights. (handbook.pdf)",
        "question  How many days of leave do I have?",
        "answer    Everybody has thirty days of leave a year. (handbook.pdf)",
    ]


def test_memory(commands: Commands, tmp_path: Path) -> None:
    assert run(commands, "memory.py", tmp_path).splitlines() == [
        "today       Nice to meet you, Ada.",
        "learnt      The user is called Ada.",
        "next week   You are called Ada.",
        "forgotten   I do not know.",
    ]


def test_models(commands: Commands, tmp_path: Path) -> None:
    """Reads "models.yaml" beside it."""
    assert run(commands, "models.py", tmp_path).splitlines() == [
        "one: profile 'offline' answered by asking; tokens used: some",
        "two: profile 'offline' answered out of the cache; tokens used: none",
    ]


def test_react(commands: Commands, tmp_path: Path) -> None:
    """Reads "react.yaml" beside it."""
    assert run(commands, "react.py", tmp_path).splitlines()[:6] == [
        "counter: What is 17 * 23?",
        "  thinks: calculator can tell.",
        '  calls: calculator({"expression": "17 * 23"})',
        "  gets: 391",
        "  thinks: I can answer.",
        "  answers: [offline demo model] it says: 391",
    ]


def test_router(commands: Commands, tmp_path: Path) -> None:
    """Reads "router.yaml" beside it."""
    answers = re.findall(r"^> (.*)\n(.*)$", run(commands, "router.py", tmp_path), re.MULTILINE)
    assert [said for _, said in answers[2:5]] == [
        "We are open from 18 to 23 h.",
        "How many guests?",
        "Please give one number.",
    ]
    assert answers[-1] == ("yes", "Booked. The deposit is 25 euros.")


def test_reflexion(commands: Commands, tmp_path: Path) -> None:
    """Reads "reflexion.yaml" beside it."""
    lines = run(commands, "reflexion.py", tmp_path).splitlines()
    for team in ("poet", "bard"):
        assert any(line.startswith(f"{team}: [offline demo model] The tides") for line in lines)
    assert sum(line.startswith("  poet_judge thinks: Score: 1.00") for line in lines) == 2


def test_contexts(commands: Commands, tmp_path: Path) -> None:
    *pages, whole = run(commands, "contexts.py", tmp_path).splitlines()
    assert max(int(re.findall(r"\d+", page)[1]) for page in pages) < 2_000, "a prompt and a summary's"
    assert whole == "messages of the thread: 48"


def test_http_tools(commands: Commands, tmp_path: Path) -> None:
    out = run(commands, "http_tools.py", tmp_path)
    assert "(the API is asked for /cities/Rome by ada)" in out
    assert "weather says: sunny, 21 degrees" in out


def test_files(commands: Commands, tmp_path: Path) -> None:
    lines = run(commands, "files.py", tmp_path).splitlines()
    assert lines[0] == "note.txt: 10 bytes, Buy bread."
    shown = ["report.csv (text/csv, assistants_output)", "note.txt (text/plain, user_data)", "city,weather"]
    assert lines[-4:] == [*shown, "files left: 0"]


def test_registered_tools(commands: Commands, tmp_path: Path) -> None:
    lines = run(commands, "registered_tools.py", tmp_path).splitlines()
    assert lines[0].startswith("refused: the credentials were tried: weather answered with 403")
    assert lines[1:3] == ["weather, its credentials: KEY", "tried: sunny, 21 degrees"]
    assert "weather says: sunny, 21 degrees" in lines[-2]
    assert lines[-1] == "calls: 2"


def test_builtin_tools(commands: Commands, tmp_path: Path) -> None:
    out = run(commands, "builtin_tools.py", tmp_path)
    assert "web_search says: 1. Tide tables\n   https://example.org/tides" in out
    assert "file_reader says: The harbour is open from 8 to 18." in out
    assert "(awaiting_input: Which day suits you?)" in out
    assert out.splitlines()[-1].endswith("ask_person says: Monday")


def test_code_interpreter(commands: Commands, tmp_path: Path) -> None:
    lines = run(commands, "code_interpreter.py", tmp_path).splitlines()
    assert "code_interpreter says: 285" in "".join(lines)
    assert lines[-5].endswith("PermissionError: Permission denied: '/etc/passwd'")
    assert lines[-3].endswith("It was stopped after 1 seconds.")
    assert "MemoryError" in lines[-1]


def test_tools_with_dependencies(commands: Commands, tmp_path: Path) -> None:
    lines = run(commands, "tools_with_dependencies.py", tmp_path).splitlines()
    assert lines[0] == "parameters: city, days"
    assert lines[1:4] == ["connected", "closed", "Rome: sun, sun"]
    assert "`days`" in lines[4]
    assert lines[-1] == "Rome: rain"


def test_selector(commands: Commands, tmp_path: Path) -> None:
    lines = run(commands, "selector.py", tmp_path).splitlines()
    assert [line.partition(":")[0] for line in lines[:4]] == ["user", "physicist", "historian", "poet"]
    assert lines[-1].startswith("(completed; Maximum number of messages 4 reached")


def test_mcp_tools(commands: Commands, tmp_path: Path) -> None:
    lines = run(commands, "mcp_tools.py", tmp_path).splitlines()
    assert "shop__price: 0.55 EUR" in lines
    assert "shop__read_resource: 8 to 18, not on Sundays" in lines
    assert lines[-1].endswith("(an error)")


def test_swarm_handoff(commands: Commands, tmp_path: Path) -> None:
    lines = run(commands, "swarm_handoff.py", tmp_path).splitlines()
    assert lines[1].startswith("desk: Transferred to refunds")
    assert "  (awaiting_input)" in lines
    assert "  (refunds waits for the customer)" in lines
    assert lines[-3:-1] == [
        "customer: That is me: the order number is 17.",
        "refunds: [offline demo model] You said: “That is me: the order number is 17.”. "
        "That makes 3 messages from you in this conversation.",
    ]
    assert lines[-1] == "  (completed)"


def test_approval(commands: Commands, tmp_path: Path) -> None:
    lines = run(commands, "approval.py", tmp_path).splitlines()
    assert lines == [
        'awaiting_input: agency wants to call book_trip with {"city": "Lisbon"}. Is that approved?',
        "[the trip to Lisbon is booked]",
        "completed: [offline demo model] book_trip says: Booked: Lisbon.",
    ]


def test_plan_execute(commands: Commands, tmp_path: Path) -> None:
    asked, done = run(commands, "plan_execute.py", tmp_path).split("> approve\n")
    assert "1. Work out 17 * 23\n2. 4096 / 64\n3. tell me the time in UTC (needs 1, 2)" in asked
    assert asked.count(": waiting\n") == 3
    assert "- Work out 17 * 23: calculator says: 391\n- 4096 / 64: calculator says: 64\n" in done
    assert done.count(": done\n") == 3


async def test_plan_execute_by_definition(tmp_path: Path) -> None:
    teams = load(str(EXAMPLES / "plan_execute.yaml"), DefinitionPolicy())
    settings = Settings(demo_delay=0, openai_api_key=None, openai_base_url=None)
    async with DrSai(teams, f"sqlite:///{tmp_path / 'plan.db'}", settings=settings) as drsai:
        assert (await drsai.run("reckoner", "What is 12 * 7?", thread_id="a")).status is RunStatus.AWAITING_INPUT
        assert "84" in ((await drsai.run("reckoner", "approve", thread_id="a")).text or "")


def test_planner(commands: Commands, tmp_path: Path) -> None:
    asked, done = run(commands, "planner.py", tmp_path).split("> Yes, go on.\n")
    assert "(awaiting_input)\n  step-1: find a place, {'status': 'planned'}" in asked
    assert "(completed)\n  step-1: find a place, {'status': 'done'}" in done
    assert done.count("'done'") == 3


def test_notes_agent(commands: Commands, tmp_path: Path) -> None:
    output = run(commands, "notes_agent.py", tmp_path)
    assert output.endswith("ada: What do you know?\n  Your notes:\n- the tide turns at noon\n")
    assert "Noted as number 2." in output


def test_custom_group_chat(commands: Commands, tmp_path: Path) -> None:
    output = run(commands, "custom_group_chat.py", tmp_path)
    assert output.endswith("health: 2\nmoney: 2\ntravel: 2\n")


def test_task_client(commands: Commands, tmp_path: Path) -> None:
    lines = [line.strip() for line in run(commands, "task_client.py", tmp_path).splitlines()]
    assert lines[0] == "step 1: calculator -> 5"
    assert lines[2] == "success: 2 steps, 1 call of a tool"
    broken = lines.index("(the connection breaks)")
    assert lines[3:broken] == ["task", "step_start", "action"]
    assert lines[broken + 1] == "observation 42"
    assert [line for line in lines if line.startswith("simple")] == ["simple: Say hello. success"]


def test_openai_client_stream(commands: Commands, tmp_path: Path) -> None:
    output = run(commands, "openai_client_stream.py", tmp_path)
    assert output.count("**writer**") == output.count("**reviewer**") == 2
    assert output.count("thread thread_") == 3
    assert "Your name is Ada." in output


def test_db_manager(commands: Commands, tmp_path: Path) -> None:
    lines = run(commands, "components/manager/db_manager_test.py", tmp_path).splitlines()
    assert lines == [
        "created: id 1, 'Hello', key shown: False",
        "read: 'Hello', temperature 0.2, key sk-secret",
        "changed: temperature 0.9, still 'Hello'",
        "deleted: 1",
        "left: 0",
        "the newest two: ['t4', 't3']",
        "by a list: ['message 0', 'message 3']",
        "by an operator: ['t2', 't3', 't4']",
        "deleted: 5",
        "synchronous: 'from a plain function'",
    ]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (
            "teams.py",
            {
                "weather": (RunStatus.COMPLETED, ["weather", "weather", "weather"]),
                "translators": (RunStatus.COMPLETED, ["french", "german", "editor"]),
                "interview": (RunStatus.AWAITING_INPUT, ["guide"]),
            },
        ),
        (
            "teams.yaml",
            {"pirate": (RunStatus.COMPLETED, ["pirate"]), "debate": (RunStatus.COMPLETED, ["pro", "contra"])},
        ),
    ],
)
async def test_teams_files(file: str, expected: dict[str, tuple[RunStatus, list[str]]], tmp_path: Path) -> None:
    teams = load_teams(str(EXAMPLES / file))
    assert set(teams) == set(expected)
    settings = Settings(demo_delay=0, openai_api_key=None, openai_base_url=None)
    async with DrSai(teams, f"sqlite:///{tmp_path / 'teams.db'}", settings=settings) as drsai:
        for name, (status, speakers) in expected.items():
            result = await drsai.run(name, "What is the temperature in Paris?", thread_id=name)
            said = [message["source"] for message in result.task_result["messages"][1:]]
            assert (result.status, sorted(said)) == (status, sorted(speakers)), name
            assert drsai.engine.teams.description(name)


async def test_the_interview_goes_on_with_the_answer(tmp_path: Path) -> None:
    teams = load_teams(str(EXAMPLES / "teams.py"))
    settings = Settings(demo_delay=0, openai_api_key=None, openai_base_url=None)
    for text, status in [
        ("Where shall I go?", RunStatus.AWAITING_INPUT),
        ("To the sea.", RunStatus.COMPLETED),
        ("And in winter?", RunStatus.AWAITING_INPUT),
    ]:
        async with DrSai(teams, f"sqlite:///{tmp_path / 'teams.db'}", settings=settings) as drsai:
            assert (await drsai.run("interview", text, thread_id="holiday")).status is status


async def test_a_team_by_definition(tmp_path: Path) -> None:
    teams = load(str(EXAMPLES / "team.yaml"), DefinitionPolicy())
    settings = Settings(demo_delay=0, openai_api_key=None, openai_base_url=None)
    async with DrSai(teams, f"sqlite:///{tmp_path / 'team.db'}", settings=settings) as drsai:
        assert drsai.engine.teams.names() == ["helper", "newsroom"]
        assert (await drsai.run("helper", "My name is Ada.", thread_id="a")).status is RunStatus.COMPLETED
        assert "Ada" in ((await drsai.run("helper", "What is my name?", thread_id="a")).text or "")
        result = await drsai.run("newsroom", "Write about the tides.", thread_id="b")
        assert (result.text or "").endswith("APPROVE")


async def test_an_agent_of_another_framework(tmp_path: Path) -> None:
    made = convert_file(str(EXAMPLES / "foreign_agent.yaml"))
    assert {each.field for each in made.notes} >= {"llm.cache_dir", "function_list[1].zone", "files", "name"}
    (tmp_path / "team.yaml").write_text(made.yaml())
    settings = Settings(demo_delay=0, openai_api_key=None, openai_base_url=None)
    teams = load(str(tmp_path / "team.yaml"), DefinitionPolicy())
    async with DrSai(teams, f"sqlite:///{tmp_path / 'team.db'}", settings=settings) as drsai:
        assert (await drsai.run("travel_guide", "My name is Ada.", thread_id="a")).status is RunStatus.COMPLETED


def test_nothing_is_left_out() -> None:
    """Every example is listed in examples/README.md and run above."""
    files = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*") if path.suffix in {".py", ".yaml"}}
    listed = set(re.findall(r"\]\(([\w./]+)\)", (EXAMPLES / "README.md").read_text()))
    assert listed == files
    here = Path(__file__).read_text()
    # The folder `notes` is one example: tests/features copies and removes it as a whole.
    assert [name for name in files if f'"{name}"' not in here and not name.startswith("notes/")] == []
