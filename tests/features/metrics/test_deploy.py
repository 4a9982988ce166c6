"""The rules and the board of `deploy/metrics` ask for what is exported, and each rule says what to do."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from drsai_backend.features.metrics.base import FAMILIES
from tests.examples.processes import ROOT

FOLDER = ROOT / "deploy/metrics"
ALERTS = FOLDER / "alerts.yaml"
BOARD = json.loads((FOLDER / "grafana/drsai.json").read_text(encoding="utf-8"))
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]
]
SAMPLES = {
    sample
    for each in FAMILIES
    for sample in ([f"{each.name}_{end}" for end in ("bucket", "sum", "count")] if each.buckets else [each.name])
}
LABELS = {each.name: set(each.labels) for each in FAMILIES}
OF_PROMETHEUS = {"le", "job", "instance"}


def board_queries() -> list[str]:
    return [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]


def metrics_of(query: str) -> set[str]:
    return set(re.findall(r"\b(?:drsai|agent)_\w+", re.sub(r'"[^"]*"', "", query)))


QUERIES = [*(rule["expr"] for rule in RULES), *board_queries()]


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_asks_for_what_is_exported(query: str) -> None:
    named = metrics_of(query)
    assert named - SAMPLES == set()
    assert named or "up{" in query
    # And for labels that it has.
    known = {label for each in FAMILIES for label in each.labels if each.name in {_family(name) for name in named}}
    grouped = {each.strip() for group in re.findall(r"by \(([^)]*)\)", query) for each in group.split(",")}
    chosen = {label for braces in re.findall(r"\{([^}]*)\}", query) for label in re.findall(r"(\w+)=", braces)}
    assert (grouped | chosen) - OF_PROMETHEUS - known == set()
    assert query.count("(") == query.count(")")


def _family(sample: str) -> str:
    return next(each.name for each in FAMILIES if sample == each.name or (each.buckets and f"{each.name}_" in sample))


def test_all_that_is_exported_is_on_the_board() -> None:
    """But for what a version is."""
    shown = {_family(name) for query in board_queries() for name in metrics_of(query)}
    assert {each.name for each in FAMILIES} - shown == {"drsai_build_info", "drsai_database_up"}


def test_each_alert_names_lines_that_say_what_to_do() -> None:
    text = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    lines = dict(re.findall(r"^### (\w+)\n\n(.*?)(?=\n### |\Z)", text, re.MULTILINE | re.DOTALL))
    assert [*lines] == [rule["alert"] for rule in RULES]
    for rule in RULES:
        assert rule["annotations"]["runbook"] == f"docs/operations.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert lines[rule["alert"]].startswith(rule["annotations"]["summary"])
        assert all(f"- **{what}**: " in lines[rule["alert"]] for what in ("Look at", "Do"))
        assert metrics_of(lines[rule["alert"]]) - {each.name for each in FAMILIES} == set()


def test_promtool_takes_rules_and_configuration() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("WITHOUT PROMTOOL: apt-get install prometheus has it")
    for check, file in (("rules", ALERTS), ("config", FOLDER / "prometheus.yaml")):
        checked = subprocess.run([promtool, "check", check, file], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("alert", "minute", "series", "labels"),
    [
        ("DrsaiModelErrors", 30, {'drsai_model_errors_total{model="m",error="e"}': "0+10x40"}, {"model": "m"}),
        (
            "DrsaiModelErrors",
            30,
            {
                'drsai_model_errors_total{model="m",error="e"}': "0+10x40",
                'drsai_model_calls_total{model="m",kind="run"}': "0+100x40",
            },
            None,
        ),
        ("DrsaiJobsFailed", 90, {'drsai_jobs{kind="k",state="failed"}': "_x80 1x20"}, {"kind": "k"}),
        ("DrsaiJobsFailed", 90, {'drsai_jobs{kind="k",state="failed"}': "1x100"}, None),
        ("DrsaiCostRises", 120, {'drsai_cost_total{model="m",currency="USD"}': "0+1x130"}, {}),
        ("DrsaiCostRises", 1560, {'drsai_cost_total{model="m",currency="USD"}': "0+1x1570"}, None),
    ],
)
def test_an_alert_needs_no_series_of_what_did_not_happen(
    tmp_path: Path, alert: str, minute: int, series: dict[str, str], labels: dict[str, str] | None
) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("WITHOUT PROMTOOL: apt-get install prometheus has it")
    [rule] = [each for each in RULES if each["alert"] == alert]
    told = {"exp_labels": {**rule["labels"], **(labels or {})}, "exp_annotations": rule["annotations"]}
    wanted = {"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": [] if labels is None else [told]}
    given = [{"series": name, "values": values} for name, values in series.items()]
    tried = {"interval": "1m", "input_series": given, "alert_rule_test": [wanted]}
    file = tmp_path / "tried.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [tried]}))
    done = subprocess.run([promtool, "test", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_parses_the_queries_of_the_board(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("WITHOUT PROMTOOL: apt-get install prometheus has it")
    rules = [
        {"record": f"board:query{number}", "expr": query.replace("$__rate_interval", "5m")}
        for number, query in enumerate(board_queries())
    ]
    file = tmp_path / "board.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}))
    checked = subprocess.run([promtool, "check", "rules", file], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_compose_starts_them_beside_what_they_read() -> None:
    compose = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text(encoding="utf-8"))
    services = compose["services"]
    [scraped] = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())["scrape_configs"]
    [targets] = [each["targets"] for each in scraped["static_configs"]]
    assert scraped["job_name"] == "drsai"
    for target in targets:
        name, port = target.split(":")
        environment = services[name]["environment"]
        assert (str(environment["DRSAI_METRICS_PORT"]), environment["DRSAI_METRICS_HOST"]) == (port, "0.0.0.0")
    assert {target.split(":")[0] for target in targets} == {
        name for name, service in services.items() if name.startswith(("server", "worker"))
    }
    for name in ("prometheus", "grafana"):
        assert services[name]["profiles"] == ["metrics"]
        mounted = [each.split(":")[0] for each in services[name]["volumes"]]
        assert all((ROOT / "deploy" / each).is_file() for each in mounted if each.startswith("./"))
        assert {each for each in mounted if not each.startswith("./")} <= compose["volumes"].keys()
        assert all(port.startswith("127.0.0.1:") for port in services[name]["ports"])


def _ids() -> Iterator[int]:
    return (panel["id"] for panel in BOARD["panels"])


def test_the_board_is_whole() -> None:
    assert len({*_ids()}) == len(BOARD["panels"])
    assert BOARD["uid"] == "drsai"
    places = [tuple(panel["gridPos"][each] for each in "xy") for panel in BOARD["panels"]]
    assert len({*places}) == len(places)
