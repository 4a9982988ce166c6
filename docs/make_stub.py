"""Writes drsai_backend/sync.pyi, the signatures of the calls without asyncio, from those they wait for: `make stub`."""

from __future__ import annotations

import ast
import copy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "drsai_backend"
STUB = PACKAGE / "sync.pyi"
HEAD = "# Made by `make stub` from the asynchronous calls; do not edit."
TWINS = {
    "SyncCaller": ["caller.Caller"],
    "SyncHandle": ["runs.feed.handle.Handle", "runs.feed.handle.StoredRun"],
    "SyncFiles": ["files.store.Files"],
    "SyncTools": ["features.registered_tools.calls.ToolCalls"],
    "SyncAgents": ["features.stored_definitions.calls.AgentCalls"],
    "SyncUsage": ["features.usage.reports.Reports"],
    "SyncBudgets": ["features.budgets.rules.Rules", "features.rules.verbs.RuleVerbs"],
    "SyncLimits": ["features.limits.rules.Rules", "features.rules.verbs.RuleVerbs"],
    "SyncSwitches": ["features.switches.extension.Switches"],
    "SyncConfig": ["features.config.extension.Config"],
    "SyncAllRuns": ["features.all_runs.all_runs.AllRuns"],
    "SyncDrSai": ["drsai.DrSai"],
}
LEFT_OUT = {
    "looked_at",
    "resume_apart",
    "after",
    "maker",
    "arriving",
    "begin",
    "sweep",
    "blocks",
    "lifespan",
    "app",
    "sync",
    "extension",
}
"""What is no call for threads, or the server's alone."""
TYPES = {
    "Caller": "SyncCaller",
    "Handle": "SyncHandle",
    "ToolCalls": "SyncTools",
    "AgentCalls": "SyncAgents",
    "AllRuns": "SyncAllRuns",
    "AsyncGenerator": "Iterator",
}
ALSO = {
    "SyncCaller": "engine: Engine; who: Principal",
    "SyncDrSai": "drsai: DrSai; files: SyncFiles; usage: SyncUsage; budgets: SyncBudgets; limits: SyncLimits; "
    "switches: SyncSwitches; config: SyncConfig",
    "SyncHandle": "thread_id: str; user_id: str; imported: bool",
}
"""Attributes that are set where no annotation says what they are."""


def stub() -> str:
    """The whole file."""
    own = ast.parse((PACKAGE / "sync.py").read_text())
    known, classes = _names(own, "sync"), list[ast.stmt]()
    for node in own.body:
        classes += [node] if isinstance(node, ast.Assign) else []  # type variables
        if not isinstance(node, ast.ClassDef) or node.name not in TWINS:
            continue
        members = dict(_members(node))
        for path in TWINS[node.name]:
            module, _, kind = path.rpartition(".")
            tree = ast.parse((PACKAGE / f"{module.replace('.', '/')}.py").read_text())
            known = _names(tree, module) | known
            (twin,) = (each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == kind)
            members = {name: member for name, member in _members(twin) if name[0] != "_"} | members
        said = ast.parse(ALSO.get(node.name, "")).body
        body = [node.body[0], *said, *(member for name, member in members.items() if name not in LEFT_OUT)]
        bases = [base for base in node.bases if ast.unparse(base) in TWINS]
        classes.append(ast.ClassDef(node.name, bases, [], body, []))
    made = _Waiting().visit(ast.Module(classes, []))
    used = {node.id for node in ast.walk(made) if isinstance(node, ast.Name)}
    imports = [known[name] for name in sorted(used & known.keys()) if " drsai_backend.sync " not in known[name]]
    text = "\n".join([HEAD, *imports, ast.unparse(ast.fix_missing_locations(made))])
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["check", "--quiet", "--fix", "--select", "I"], ["format", "--quiet"]):
        done = [*ruff, *command, "--stdin-filename", str(STUB), "-"]
        text = subprocess.run(done, input=text, capture_output=True, text=True, check=True).stdout
    return text


def _names(tree: ast.Module, module: str) -> dict[str, str]:
    """How each name of a module is imported elsewhere."""
    found = dict[str, str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {each.name: f"from {node.module} import {each.name}" for each in node.names if not each.asname}
    for node in tree.body:
        defined = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [node])
        for each in defined:
            if name := getattr(each, "id", getattr(each, "name", None)):
                found[name] = f"from drsai_backend.{module} import {name}"
    return found


def _members(node: ast.ClassDef) -> Iterator[tuple[str, ast.stmt]]:
    """What a class shows: its calls and its attributes, without what they do."""
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.target.id[0] != "_":
            yield each.target.id, ast.AnnAssign(each.target, each.annotation, None, 1)
        elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and _is_shown(each.name):
            function = copy.deepcopy(each)
            function.body = [ast.Expr(ast.Constant(text))] if (text := ast.get_docstring(each, False)) else []
            function.body = function.body or [ast.Expr(ast.Constant(...))]
            yield each.name, function


def _is_shown(name: str) -> bool:
    return name[0] != "_" or name in ("__init__", "__enter__", "__exit__")


class _Waiting(ast.NodeTransformer):
    """Makes what is awaited a plain call, and twins of types."""

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self.visit(ast.FunctionDef(**dict(ast.iter_fields(node))))

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(TYPES.get(node.id, node.id))

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if ast.unparse(node.value) == "AsyncGenerator" and isinstance(node.slice, ast.Tuple):
            node.slice = node.slice.elts[0]
        return self.generic_visit(node)


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
