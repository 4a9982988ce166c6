"""Bad definitions: each is refused with a sentence that names file, line and field, and says what would be right."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from textwrap import dedent

import pytest

from drsai_backend.definitions import DefinitionError, read_definitions

AGENT = "agents:\n  ann:\n    prompt: Hi.\n"
TWO = "agents:\n  ann: {prompt: Hi.}\n  bob: {prompt: Hi.}\n"
TEAM = TWO + "teams:\n  crew:\n    kind: round_robin\n    participants: [ann, bob]\n"
ENDS = "    max_turns: 2\n"
ROUTER = "    strategy:\n      kind: router\n"
FLOW = ROUTER + "      flows:\n        f:\n          steps:\n".replace(
    "        f:\n", "        f: \n          description: F.\n"
)

# What is written, the line, the field, and a part of what is said.
BAD: dict[str, tuple[str, int | None, str, str]] = {
    "nothing": ("", 1, "", "must be a mapping"),
    "a list": ("- ann\n", 1, "", "must be a mapping"),
    "no YAML": ("agents: [ann\n", 2, "", "not valid YAML"),
    "a tab": ("agents:\n\tann: {}\n", 2, "", "not valid YAML"),
    "empty": ("tools: {}\n", 1, "", "no agents and no teams"),
    "an unknown section": (AGENT + "agent: {}\n", 4, "agent", "no such field"),
    "a section that is a list": ("agents: [ann]\n", 1, "agents", "must be a mapping"),
    "a key twice": (AGENT + "    prompt: Again.\n", 4, "agents.ann.prompt", "is there twice"),
    "a key that is no text": ("agents:\n  3: {prompt: Hi.}\n", 2, "agents", "put 3 in quotes"),
    "a key that is a list": ("agents:\n  ? [a]\n  : {prompt: Hi.}\n", 2, "agents", "must be a text"),
    "a name with a space": ("agents:\n  ann lee: {prompt: Hi.}\n", 2, "agents.ann lee", "letters, digits"),
    "a name with a dash": ("agents:\n  ann-lee: {prompt: Hi.}\n", 2, "agents.ann-lee", "letters, digits"),
    "an agent that is a text": ("agents:\n  ann: Hi.\n", 2, "agents.ann", "must be a mapping"),
    "a team that is a text": (AGENT + "teams:\n  t: hello\n", 5, "teams.t", "must be a mapping"),
    "a team without a name": (AGENT + "teams:\n  kind: round_robin\n", 5, "teams.kind", "must be a mapping"),
    "a field misspelt": ("agents:\n  ann:\n    promt: Hi.\n", 3, "agents.ann.promt", "did you mean 'prompt'?"),
    "a field of AutoGen's": (AGENT + "    system_message: x\n", 4, "agents.ann.system_message", "no such field"),
    "a field of a team": (AGENT + "    participants: []\n", 4, "agents.ann.participants", "no such field"),
    "a prompt that is a number": ("agents:\n  ann: {prompt: 3}\n", 2, "agents.ann.prompt", "must be a text"),
    "a date for a text": (AGENT + "    description: [2026-01-01]\n", 4, "agents.ann.description", "must be a text"),
    "an unknown variable": (
        "agents:\n  ann:\n    prompt: Hi {{name}}.\n",
        3,
        "agents.ann.prompt",
        "no variable {{name}}",
    ),
    "a variable of code": ("agents:\n  ann:\n    prompt: '{{user_id.x}}'\n", 3, "agents.ann.prompt", "no variable"),
    "too many iterations": (AGENT + "    max_iterations: 100\n", 4, "agents.ann.max_iterations", "at most 99"),
    "no iterations": (AGENT + "    max_iterations: 0\n", 4, "agents.ann.max_iterations", "at least 1"),
    "half an iteration": (AGENT + "    max_iterations: 1.5\n", 4, "agents.ann.max_iterations", "whole number"),
    "iterations in quotes": (AGENT + "    max_iterations: '5'\n", 4, "agents.ann.max_iterations", "whole number"),
    "a strategy misspelt": (AGENT + "    strategy: tool\n", 4, "agents.ann.strategy", "did you mean 'tools'?"),
    "simple with tools": (
        AGENT + "    strategy: simple\n    tools: [calculator]\n",
        2,
        "agents.ann",
        "calls no tools",
    ),
    "a handoff twice": (TWO + "  cat:\n    handoffs: [bob, bob]\n", 5, "agents.cat.handoffs[1]", "there already"),
    "a tool with the name of a handoff": (
        TWO + "  cat:\n    handoffs: [bob]\n    tools:\n      - builtin: calculator\n      - {agent: transfer_to_bob}\n"
        "  transfer_to_bob: {}\n",
        8,
        "agents.cat.tools[1]",
        "handoff to 'bob'",
    ),
    "outputs that are less than none": (
        AGENT + "    context:\n      kind: token_buffered\n      max_tokens: 9\n      ephemeral: {x: -1}\n",
        7,
        "agents.ann.context.ephemeral.x",
        "at least 0",
    ),
    "a flow with the name of its agent": (
        AGENT + FLOW.replace("f:", "ann:") + "            - {say: Hi.}\n",
        7,
        "agents.ann.strategy.flows.ann",
        "name of the agent",
    ),
    "a plan of an agent with a long name": (
        "agents:\n  " + 54 * "a" + ": {strategy: plan_execute}\n",
        2,
        "agents." + 54 * "a" + ".strategy",
        "at most 53 letters",
    ),
    "a router of nothing": (AGENT + "    strategy: router\n", 2, "agents.ann", "nothing to choose from"),
    "a router to nobody": (
        AGENT + "    strategy:\n      kind: router\n      skills: [{agent: bob}]\n",
        6,
        "agents.ann.strategy.skills[0].agent",
        "no agent or team 'bob'",
    ),
    "a router to itself": (
        AGENT + "    strategy:\n      kind: router\n      skills: [{agent: ann}]\n",
        2,
        "agents.ann",
        "a part of itself: ann → ann",
    ),
    "a router without a way out": (
        AGENT + "    tools: [calculator]\n    strategy: {kind: router, answers: false}\n",
        2,
        "agents.ann",
        "`strategy.fallback` has to say",
    ),
    "a pattern that is none": (
        AGENT + ROUTER + "      patterns: [{match: '(', say: Hi.}]\n",
        6,
        "agents.ann.strategy.patterns[0]",
        "no regular expression",
    ),
    "a pattern to two": (
        AGENT + ROUTER + "      patterns: [{match: a, say: Hi., flow: f}]\n",
        6,
        "agents.ann.strategy.patterns[0]",
        "say",
    ),
    "a pattern to a flow that is not there": (
        AGENT + ROUTER + "      patterns: [{match: a, flow: f}]\n",
        2,
        "agents.ann",
        "the flow 'f', which is not in `flows`",
    ),
    "a flow without steps": (
        AGENT + ROUTER + "      flows: {f: {description: F., steps: []}}\n",
        6,
        "agents.ann.strategy.flows.f.steps",
        "at least 1",
    ),
    "a step of no kind": (
        AGENT + FLOW + "            - {aks: name}\n",
        10,
        "agents.ann.strategy.flows.f.steps[0]",
        "an object with one of ask",
    ),
    "a step's field misspelt": (
        AGENT + FLOW + "            - {ask: name, prompt: Name, optionl: true}\n",
        10,
        "agents.ann.strategy.flows.f.steps[0].optionl",
        "'optional'?",
    ),
    "a slot that nobody fills": (
        AGENT + FLOW + "            - say: 'Hi {{name}}'\n",
        7,
        "agents.ann.strategy.flows.f",
        "speaks of 'name'",
    ),
    "a step that is not there": (
        AGENT + FLOW + "            - {goto: bed}\n",
        7,
        "agents.ann.strategy.flows.f",
        "no step of the flow",
    ),
    "a choice without choices": (
        AGENT + FLOW + "            - {ask: name, type: choice, prompt: Which}\n",
        10,
        "agents.ann.strategy.flows.f.steps[0]",
        "`choices`",
    ),
    "a date that is none": (
        AGENT + FLOW + "            - {ask: day, type: date, prompt: When, min: soon}\n",
        10,
        "agents.ann.strategy.flows.f.steps[0]",
        "'today'",
    ),
    "a default that is no value": (
        AGENT + FLOW + "            - {ask: n, type: integer, max: 5, prompt: How many, default: 6}\n",
        10,
        "agents.ann.strategy.flows.f.steps[0]",
        "at most 5",
    ),
    "a flow that calls another tool": (
        AGENT + "    tools: [calculator]\n" + FLOW + "            - {tool: calculater}\n",
        11,
        "agents.ann.strategy.flows.f.steps[0].tool",
        "did you mean 'calculator'?",
    ),
    "a flow that calls tools without any": (
        AGENT + FLOW + "            - {tool: calculator}\n",
        2,
        "agents.ann",
        "give it `tools`",
    ),
    "hot": (AGENT + "    model: {temperature: 3}\n", 4, "agents.ann.model.temperature", "at most 2"),
    "a model's field misspelt": (
        AGENT + "    model: {temprature: 1}\n",
        4,
        "agents.ann.model.temprature",
        "'temperature'?",
    ),
    "a model that is a list": (AGENT + "    model: [fast]\n", 4, "agents.ann.model", "must be a"),
    "a field of memory": (AGENT + "    memory: {topk: 3}\n", 4, "agents.ann.memory.topk", "'top_k'?"),
    "a URL of files": (
        AGENT + "    knowledge: {files: [a.pdf, 'ftp://example.org/a.pdf']}\n",
        4,
        "agents.ann.knowledge.files[1]",
        "must begin with https://",
    ),
    "a password in a URL of files": (
        AGENT + "    knowledge: {files: ['https://ann:x@example.org/']}\n",
        4,
        "agents.ann.knowledge.files[0]",
        "user name or password",
    ),
    "a path that is none": (
        AGENT + '    knowledge: {files: ["a\\0b"]}\n',
        4,
        "agents.ann.knowledge.files[0]",
        "without control characters",
    ),
    "an empty path": (AGENT + "    knowledge: {files: ['']}\n", 4, "agents.ann.knowledge.files[0]", "not be empty"),
    "pieces of files": (
        AGENT + "    knowledge: {files: [a.pdf], chunk_size: 99}\n",
        4,
        "agents.ann.knowledge.chunk_size",
        "between 100 and 4096",
    ),
    "an overlap of files": (
        AGENT + "    knowledge: {files: [a.pdf], chunk_size: 100, chunk_overlap: 51}\n",
        4,
        "agents.ann.knowledge.chunk_overlap",
        "at most half of `chunk_size`",
    ),
    "no store": (AGENT + "    knowledge: []\n", 4, "agents.ann.knowledge.stores", "must have at least 1, or `files`"),
    "an overlap": (
        AGENT + "    knowledge: {chunk_size: 5, chunk_overlap: 5}\n",
        4,
        "agents.ann.knowledge",
        "`chunk_overlap` must be less",
    ),
    "a field of knowledge": (AGENT + "    knowledge: {topk: 3}\n", 4, "agents.ann.knowledge.topk", "'top_k'?"),
    "a depth": ("{a: " * 3000, None, "", "nested too deeply"),
    "a secret in clear": (AGENT + "    model: {api_key: sk-1}\n", 4, "agents.ann.model.api_key", "no such field"),
    "a tool misspelt": (AGENT + "    tools: [calcualtor]\n", 4, "agents.ann.tools[0]", "did you mean 'calculator'?"),
    "a tool of no kind": (
        AGENT + "    tools: [{name: x}]\n",
        4,
        "agents.ann.tools[0]",
        "an object with one of builtin",
    ),
    "a tool of two kinds": (
        AGENT + "    tools:\n    - {builtin: calculator, mcp: x}\n",
        5,
        "agents.ann.tools[0].mcp",
        "no such field",
    ),
    "tools that are a text": (AGENT + "    tools: calculator\n", 4, "agents.ann.tools", "must be a list"),
    "an HTTP tool without its address": (
        AGENT + "    tools:\n    - http: {name: x, description: y, endpoint: {method: GET}}\n",
        5,
        "agents.ann.tools[0].http.endpoint.url",
        "is required",
    ),
    "Python that nobody allows": (
        AGENT + "    tools: [{python: 'os:system'}]\n",
        4,
        "agents.ann.tools[0].python",
        "allows lab",
    ),
    "Python that is near it": (
        AGENT + "    tools: [{python: 'labs:x'}]\n",
        4,
        "agents.ann.tools[0].python",
        "may not be named",
    ),
    "Python of no form": (
        AGENT + "    tools: [{python: 'lab.x'}]\n",
        4,
        "agents.ann.tools[0].python",
        "must be the import path of a function, as `package.module:name`",
    ),
    "a strategy that is a list": (AGENT + "    strategy: [react]\n", 4, "agents.ann.strategy", "must be a mapping"),
    "a choice misspelt": (
        AGENT + "    tools: [calculator]\n    tool_choice: calculater\n",
        5,
        "agents.ann.tool_choice",
        "did you mean 'calculator'?",
    ),
    "an agent as a tool that is not there": (
        AGENT + "    tools: [{agent: bob}]\n",
        4,
        "agents.ann.tools[0].agent",
        "no agent or team 'bob'",
    ),
    "an agent in itself": (AGENT + "    tools: [{agent: ann}]\n", 2, "agents.ann", "a part of itself: ann → ann"),
    "an answer by nobody": (TEAM + ENDS + "    answered_by: eve\n", 5, "teams.crew", "'eve'"),
    "a speaker who is none": (TEAM + ENDS + "    shown: [eve]\n", 5, "teams.crew", "`shown` names 'eve'"),
    "what says who speaks": (TEAM + ENDS + "    shown: first\n", 9, "teams.crew.shown", "'last'"),
    "a circle": (
        "teams:\n  a: {kind: round_robin, participants: [b], max_turns: 1}\n"
        "  b: {kind: round_robin, participants: [a], max_turns: 1}\n",
        2,
        "teams.a",
        "a part of itself: a → b → a",
    ),
    "a context of no kind": (AGENT + "    context: {max_tokens: 9}\n", 4, "agents.ann.context.kind", "is required"),
    "a context misspelt": (
        AGENT + "    context: {kind: bufered, buffer_size: 3}\n",
        4,
        "agents.ann.context.kind",
        "'buffered'?",
    ),
    "an example without its answer": (
        AGENT + "    examples: [{user: x}]\n",
        4,
        "agents.ann.examples[0].assistant",
        "is required",
    ),
    "a team of no kind": (TWO + "teams:\n  crew: {participants: [ann]}\n", 5, "teams.crew.kind", "is required"),
    "a team misspelt": (
        TWO + "teams:\n  crew: {kind: round_robbin, participants: [ann]}\n",
        5,
        "teams.crew.kind",
        "'round_robin'?",
    ),
    "nobody takes part": (
        TWO + "teams:\n  crew: {kind: swarm, participants: []}\n",
        5,
        "teams.crew.participants",
        "at least 1",
    ),
    "somebody twice": (
        TWO + "teams:\n  crew: {kind: round_robin, participants: [ann, ann], max_turns: 2}\n",
        5,
        "teams.crew",
        "'ann' twice",
    ),
    "a participant misspelt": (
        TWO + "teams:\n  crew:\n    kind: round_robin\n    participants: [ann, bop]\n    max_turns: 2\n",
        7,
        "teams.crew.participants[1]",
        "did you mean 'bob'?",
    ),
    "a team without an end": (TEAM, 5, "teams.crew", "would never end"),
    "a termination of nothing": (TEAM + "    termination: {}\n", 8, "teams.crew.termination", "at least one"),
    "a termination misspelt": (
        TEAM + "    termination: {max_message: 3}\n",
        8,
        "teams.crew.termination.max_message",
        "'max_messages'?",
    ),
    "a handoff to nobody": (
        "agents:\n  ann: {handoffs: [bop]}\n  bob: {}\nteams:\n  s: {kind: swarm, participants: [ann, bob]}\n",
        2,
        "agents.ann.handoffs[0]",
        "did you mean 'bob'?",
    ),
    "an edge to nobody": (
        TWO + "teams:\n  g: {kind: graph, participants: [ann, bob], edges: [{from: ann, to: eve}]}\n",
        5,
        "teams.g",
        "'eve'",
    ),
    "a team in a graph": (
        TEAM + ENDS + "  g: {kind: graph, participants: [ann, crew], edges: [{from: ann, to: crew}]}\n",
        9,
        "teams.g.participants[1]",
        "takes agents only",
    ),
    "two of a name": (
        "agents:\n  ann: {}\nteams:\n  ann: {kind: round_robin, participants: [ann], max_turns: 1}\n",
        4,
        "teams.ann",
        "an agent has this name",
    ),
    "nobody is served": (AGENT + "serve: [anne]\n", 4, "serve[0]", "did you mean 'ann'?"),
    "a variable that is not set": (
        "agents:\n  ann: {prompt: '${NOT_SET}'}\n",
        2,
        "agents.ann.prompt",
        "NOT_SET is not set",
    ),
    "a selector of one": (
        TWO + "teams:\n  s:\n    kind: selector\n    participants: [ann]\n    max_turns: 2\n",
        7,
        "teams.s.participants",
        "chooses among two at least",
    ),
    "a circle in a graph": (
        TWO + "  cat: {}\nteams:\n  g:\n    kind: graph\n    participants: [ann, bob, cat]\n    start: ann\n"
        "    edges: [{from: ann, to: bob}, {from: bob, to: ann}]\n",
        10,
        "teams.g.edges",
        "Cycle detected without exit condition: ann -> bob -> ann): give `when`",
    ),
    "conditions on some edges": (
        TWO + "  cat: {}\nteams:\n  g:\n    kind: graph\n    participants: [ann, bob, cat]\n"
        "    edges: [{from: ann, to: bob, when: X}, {from: ann, to: cat}]\n",
        9,
        "teams.g.edges",
        "to all edges from a participant or to none of them",
    ),
    "a graph without a beginning": (
        TWO + "teams:\n  g:\n    kind: graph\n    participants: [ann, bob]\n"
        "    edges: [{from: ann, to: bob, when: X}, {from: bob, to: ann, when: Y}]\n",
        8,
        "teams.g.edges",
        "a participant where it begins (`start`)",
    ),
    "more kept than there is": (
        AGENT + "    context: {kind: compaction, max_tokens: 99, keep: 0.9}\n",
        4,
        "agents.ann.context.keep",
        "must be less than `share`, which is 0.8",
    ),
    "done without its strategy": (
        AGENT + "    tools: [calculator]\n    tool_choice: done\n",
        5,
        "agents.ann.tool_choice",
        "require_done: true",
    ),
    "an end by nobody": (
        TEAM + "    termination: {text_message: eve, handoff: user}\n",
        8,
        "teams.crew.termination",
        "would never end: nobody",
    ),
    "a file that is not there": (AGENT + "include: [other.yaml]\n", 4, "include[0]", "there is no such file"),
    "billions": (
        "agents:\n" + "".join(f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9) if n else 'x'}]\n" for n in range(8)),
        None,
        "",
        "too many parts",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_named(case: str, tmp_path: Path) -> None:
    text, line, field, said = BAD[case]
    file = tmp_path / "team.yaml"
    file.write_text(text)
    with pytest.raises(DefinitionError) as refused:
        read_definitions(str(file), ["lab"], environment={})
    first = refused.value.problems[0]
    assert said in first.message, first
    assert first.file.endswith("team.yaml")
    if line is not None:
        assert (first.line, first.field) == (line, field), str(first)
    assert str(first) in str(refused.value)


def test_there_are_fifty() -> None:
    assert len(BAD) >= 50


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    file = tmp_path / "team.yaml"
    file.write_text(
        dedent("""\
        agents:
          ann:
            promt: Hi.
            max_iterations: 0
            tools: [{htp: {}}]
        """)
    )
    with pytest.raises(DefinitionError) as refused:
        read_definitions(str(file))
    assert [each.line for each in refused.value.problems] == [3, 4, 5]


MANY = """\
agents:
  ann:
    promt: Hi.
    tools: [calculater, {htp: {}}, current_tme]
  bob:
    prompt: Hi {{name}}.
    prompt: Hi.
  cat:
    strategy: simple
    tools: [{python: "os:system"}]
  dan: {context: {kind: bufered}, handoffs: [eve]}
  fay: {description: "${NOT_SET}"}
  gus: {strategy: {kind: tools, require_done: true, reminder: 3}, tools: [calculator], tool_choice: done}
teams:
  crew: {kind: round_robbin, participants: [ann, bop]}
  duo: {kind: selector, participants: [ann], max_turn: 3}
  team: {kind: graph, participants: [crew, ann], edges: [{from: ann, to: eve}]}
serve: [crw]
"""


def test_form_names_and_what_cannot_be_read_are_said_at_once(tmp_path: Path) -> None:
    """And nothing that only comes of something else: no end for `duo`, whose `max_turns` is misspelt."""
    file = tmp_path / "team.yaml"
    file.write_text(MANY)
    with pytest.raises(DefinitionError) as refused:
        read_definitions(str(file), environment={})
    assert [(each.line, each.field) for each in refused.value.problems] == [
        (3, "agents.ann.promt"),
        (4, "agents.ann.tools[1]"),
        (4, "agents.ann.tools[0]"),
        (4, "agents.ann.tools[2]"),
        (7, "agents.bob.prompt"),
        (8, "agents.cat"),
        (10, "agents.cat.tools[0].python"),
        (11, "agents.dan.context.kind"),
        (12, "agents.fay.description"),
        (13, "agents.gus.strategy.reminder"),
        (15, "teams.crew.kind"),
        (15, "teams.crew.participants[1]"),
        (16, "teams.duo.max_turn"),
        (16, "teams.duo.participants"),
        (17, "teams.team"),
        (18, "serve[0]"),
    ]


def test_an_unknown_server_is_named(tmp_path: Path) -> None:
    file = tmp_path / "team.yaml"
    file.write_text(AGENT + "    tools: [{mcp: filez}]\n")
    assert read_definitions(str(file)).served == ["ann"], "where it is not known which there are"
    for known, said in ((["files"], "; did you mean 'files'?"), ([], ": DRSAI_MCP_SERVERS names none")):
        with pytest.raises(DefinitionError) as refused:
            read_definitions(str(file), mcp=partial(list[str], known))
        assert str(refused.value).endswith(f":4: agents.ann.tools[0].mcp: there is no MCP server 'filez'{said}")


def test_what_an_included_file_has_wrong_is_said_of_that_file(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "ann.yaml").write_text("agents:\n  ann: {max_iterations: 0}\n")
    (tmp_path / "bob.yaml").write_text("agents:\n  bob: {}\n")
    file = tmp_path / "team.yaml"
    file.write_text("include: [parts/ann.yaml, bob.yaml]\nagents:\n  bob: {}\n")
    with pytest.raises(DefinitionError) as refused:
        read_definitions(str(file))
    found = [
        (Path(each.file).name, each.line, each.field, each.message.split(" ")[0]) for each in refused.value.problems
    ]
    assert found == [("bob.yaml", 2, "agents.bob", "is"), ("ann.yaml", 2, "agents.ann.max_iterations", "must")]
