"""README and docs do not lie: their blocks are run, and the output is compared.

A `python` block that is followed by a `text` block must print it. In a `console` block, lines that
start with `$ ` are commands, and what follows is their output, standard error included. An ellipsis
stands for anything.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from broker.jars import connector_jars
from lastword.cleaner.metrics import PassTotals, as_prometheus
from lastword.cleaner.overview import overview
from lastword.store import Store
from lastword.testing import InProcess

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN_PAGES = [p for p in PAGES if "```python" in p.read_text() or "```console" in p.read_text()]
NOT_RUN = ("pip install", "make ")
BROKER = "KAFKA_BOOTSTRAP_SERVERS"

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
CHECKER = doctest.OutputChecker()


def agrees(expected: str, found: str) -> bool:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return CHECKER.check_output(_timeless(expected), _timeless(found), flags)


def _timeless(text: str) -> str:
    """Without the time of day; the size of a small file varies by some bytes with it."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z", "TIME", text)
    return re.sub(r"\b1\d\d\d\b(?= │)", "SIZE", text).replace("…", "...")


@pytest.mark.parametrize("page", RUN_PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_page(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    if BROKER in page.read_text():
        monkeypatch.setenv(BROKER, request.getfixturevalue("kafka").bootstrap)
        monkeypatch.setenv("LASTWORD_KAFKA_JARS", connector_jars())
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    names: dict[str, object] = {}
    printed = None
    for kind, text in BLOCK.findall(page.read_text()):
        if kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as stdout:
                exec(compile(text, str(page), "exec"), names)
            printed = stdout.getvalue()
        elif kind == "text" and printed is not None:
            assert agrees(text, printed), f"{page.name} says\n{text}\nbut it printed\n{printed}"
            printed = None
        elif kind == "console":
            run_console(text, monkeypatch)


def run_console(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.M):
        if command.startswith(f"export {BROKER}="):
            continue  # ours is elsewhere
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            monkeypatch.setenv(name, value)
        elif not command.startswith(NOT_RUN):
            done = subprocess.run(
                command,
                shell=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            assert agrees(expected, done.stdout), f"$ {command}\n{done.stdout}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert "://" in target or (page.parent / target).exists(), target


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_example(example: Path, tmp_path: Path) -> None:
    """An example's docstring ends with what it prints."""
    done = subprocess.run(
        [sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    expected = example.read_text().split('"""')[1].partition("prints:\n")[2]
    assert agrees(re.sub(r"^ {4}", "", expected, flags=re.M).strip() + "\n", done.stdout)


def test_alerts_and_dashboard_speak_of_metrics_that_there_are(local: Store) -> None:
    local.create_topic("t").append([("a", "1"), ("a", "2")])
    local.clean(force=True, runner=InProcess())
    text = as_prometheus(overview(local.base), PassTotals().count(local.base.catalog))
    known = {re.split("[{ ]", line)[0] for line in text.splitlines() if line[0] != "#"}
    rules = (ROOT / "docs/monitoring/alerts.yml").read_text()
    panels = json.loads((ROOT / "docs/monitoring/grafana.json").read_text())["panels"]
    used = re.findall(r"\blastword_\w+", rules + json.dumps(panels))
    assert len(set(used)) > 10
    assert set(used) - known == set()
    told = (ROOT / "docs/operations.md").read_text()
    for alert in yaml.safe_load(rules)["groups"][0]["rules"]:
        assert alert["alert"] in told


@pytest.fixture
def promtool() -> str:
    """Prometheus's own."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("no promtool here; it is in Debian's package prometheus")
    return found


def test_alerts_fire_when_they_should_and_else_not(promtool: str) -> None:
    rules = ROOT / "docs/monitoring"
    done = subprocess.run([promtool, "test", "rules", "alerts.test.yml"], cwd=rules, capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    tried = yaml.safe_load((rules / "alerts.test.yml").read_text())["tests"]
    alerts = yaml.safe_load((rules / "alerts.yml").read_text())["groups"][0]["rules"]
    assert {t["alertname"] for test in tried for t in test["alert_rule_test"]} == {
        alert["alert"] for alert in alerts
    }


def test_metrics_are_what_prometheus_reads(promtool: str, local: Store) -> None:
    local.create_topic("t").append([("a", "1"), ("a", "2")])
    local.clean(force=True, runner=InProcess())
    text = as_prometheus(overview(local.base), PassTotals().count(local.base.catalog))
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)  # fmt: skip
    names = {line.split()[0] for line in (done.stdout + done.stderr).splitlines()}
    kafkas = {"dead_worker_count", "time_since_last_run_ms", "uncleanable_partitions_count"}
    assert names == {f"lastword_{name}" for name in kafkas}  # whose names are Kafka's
