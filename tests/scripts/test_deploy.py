"""What `deploy` and the Dockerfile hold: versions agree, and each file says only what program and schema know."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest
import yaml
from support.command_line import run_trimtab

ROOT = Path(__file__).parents[2]
CHART, COMPOSE = ROOT / "deploy/chart", ROOT / "deploy/compose"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
TEMPLATES = {file.name: file.read_text() for file in sorted((CHART / "templates").iterdir())}
KINDS = {"ConfigMap", "Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler", "ServiceMonitor"}


def fill(template: str) -> list[Any]:
    """The documents of a template with every condition met. It knows only what the chart uses; Helm knows more."""

    def write(match: re.Match[str]) -> str:
        words = match[1].strip("- ").split()
        if words[0] in {"if", "end", "with"}:
            return ""
        if words[0] == "toYaml":
            return "{}" if "sha256sum" not in words else "hash"
        found: Any = {"Values": VALUES, "Release": {"Name": "name"}}
        for name in words[0].strip(".").split("."):
            found = found[name]
        return str(found)

    text = re.sub(r"^ *\{\{- (?:if|end|with)[^\n]*\}\}\n", "", template, flags=re.MULTILINE)
    indented = r"^ *\{\{- toYaml (?:\.|\S+) \| nindent (\d+) \}\}"
    text = re.sub(indented, lambda match: f"{' ' * int(match[1])}{{}}", text, flags=re.MULTILINE)
    return [one for one in yaml.safe_load_all(re.sub(r"\{\{(.*?)\}\}", write, text)) if one]


def test_the_values_fit_their_schema() -> None:
    """And the schema refuses a value with a wrong name or type."""
    schema = orjson.loads((CHART / "values.schema.json").read_bytes())
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.validate(VALUES, schema)
    assert set(VALUES) <= set(schema["properties"])
    for wrong in ({"replica": 2}, {"replicas": "two"}, {"service": {"port": 0}}, {"image": {"tag": "1"}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(VALUES | wrong, schema)


def test_templates_use_the_values_that_there_are() -> None:
    """Each value is used, and each that is used exists."""
    used = {name for text in TEMPLATES.values() for name in re.findall(r"\.Values\.([\w.]+)", text)}
    for name in used:
        found: Any = VALUES
        for part in name.split("."):
            found = found[part]
    assert {name.partition(".")[0] for name in used} == set(VALUES)
    for text in TEMPLATES.values():
        assert len(re.findall(r"\{\{- (?:if|with) ", text)) == len(re.findall(r"\{\{- end \}\}", text))


def test_the_chart_renders_every_kind_with_the_same_labels() -> None:
    """What selects pods finds those of the deployment. They run without root, with the program's own probes."""
    documents = [one for text in TEMPLATES.values() for one in fill(text)]
    kinds = {one["kind"]: one for one in documents}
    assert set(kinds) == KINDS
    pod = kinds["Deployment"]["spec"]["template"]
    labels = pod["metadata"]["labels"]
    for kind in ("Deployment", "PodDisruptionBudget"):
        assert kinds[kind]["spec"]["selector"]["matchLabels"] == labels
    assert kinds["Service"]["spec"]["selector"] == labels
    assert (
        kinds["ServiceMonitor"]["spec"]["selector"]["matchLabels"].items()
        <= kinds["Service"]["metadata"]["labels"].items()
    )
    container = pod["spec"]["containers"][0]
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/trimtab/ready"
    assert container["livenessProbe"]["httpGet"]["path"] == "/trimtab/health"
    assert kinds["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == kinds["Deployment"]["metadata"]["name"]


def test_the_charts_pods_may_finish_their_answers() -> None:
    """The grace period is longer than delay and drain, and trimtab accepts the configuration."""
    limits = VALUES["config"]["limits"]
    assert sum(limits.values()) < VALUES["terminationGracePeriodSeconds"]


@pytest.mark.parametrize("source", ["chart", "compose"])
def test_trimtab_accepts_the_configurations(source: str, tmp_path: Path) -> None:
    """With a value for each variable that they name."""
    file = tmp_path / "trimtab.yaml"
    text = yaml.safe_dump(VALUES["config"]) if source == "chart" else (COMPOSE / "trimtab.yaml").read_text()
    file.write_text(text)
    variables = {name: f"planted-{name}" for name in re.findall(r"\$\{(\w+)\}", text)}
    done = run_trimtab("check", str(file), **variables)
    assert done.exit_code == 0, done.output


def test_what_compose_mounts_is_there() -> None:
    """Volumes are declared, files exist, and each address is that of a service and its port."""
    compose = yaml.safe_load((COMPOSE / "compose.yaml").read_text())
    services = compose["services"]
    assert set(services) == {"trimtab", "valkey", "prometheus", "grafana"}
    for service in services.values():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert (COMPOSE / source).is_file() if source.startswith(".") else source in compose["volumes"]
        assert set(service.get("depends_on", ())) <= set(services)
    build = services["trimtab"]["build"]
    assert (COMPOSE / build["context"] / build["dockerfile"]).is_file()
    prometheus = yaml.safe_load((COMPOSE / "prometheus.yml").read_text())["scrape_configs"][0]
    (target,) = prometheus["static_configs"][0]["targets"]
    own = yaml.safe_load((COMPOSE / "trimtab.yaml").read_text())
    assert target == f"trimtab:{own['metrics_listen'].rpartition(':')[2]}"
    assert own["store"].startswith("redis://valkey:")
    assert own["workers"] == 2
    mounted = {volume.split(":")[1] for volume in services["prometheus"]["volumes"]}
    assert "/etc/prometheus/trimtab-rules.yml" in mounted
    assert prometheus["authorization"]["credentials_file"] == services["prometheus"]["configs"][0]["target"]


def test_the_versions_agree() -> None:
    """Those of the package, the chart and the image."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert {chart["version"], chart["appVersion"], VALUES["image"]["tag"]} == {PROJECT["version"]}
    assert f"ARG VERSION={PROJECT['version']}\n" in (ROOT / "Dockerfile").read_text()


def test_every_dependency_is_locked_with_its_hash() -> None:
    """Those of the package and of the extras in the image."""
    lock = (ROOT / "deploy/requirements.lock").read_text()
    pinned = {name.replace(".", "-") for name in re.findall(r"^([\w.-]+)==\S+", lock, re.MULTILINE)}
    extras = PROJECT["optional-dependencies"]
    for wanted in (*PROJECT["dependencies"], *extras["otel"], *extras["redis"]):
        name = re.match(r"[\w.-]+", wanted)
        assert name[0].replace(".", "-") in pinned
    assert len(re.findall("--hash=sha256:", lock)) >= len(pinned)


def start_release(tree: Path) -> subprocess.CompletedProcess[str]:
    (tree / "scripts").mkdir()
    (tree / "deploy/chart").mkdir(parents=True)
    for file in ("scripts/release", "deploy/chart/Chart.yaml", "Dockerfile"):
        (tree / file).write_bytes((ROOT / file).read_bytes())
    only_system = {"PATH": "/usr/bin:/bin"}
    command = ["/bin/bash", tree / "scripts/release"]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=only_system)


def test_a_release_needs_the_same_version_everywhere(tmp_path: Path) -> None:
    """Nothing is built before."""
    (tmp_path / "pyproject.toml").write_text('version = "9.9.9"\n')
    done = start_release(tmp_path)
    assert done.returncode == 1
    assert done.stderr == "deploy/chart/Chart.yaml: has not version 9.9.9 of pyproject.toml\n"


def test_a_release_is_built_by_the_uv_of_the_tests_where_none_is_on_the_path(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    uv = tmp_path / ".venv/bin/uv"
    uv.parent.mkdir(parents=True)
    uv.write_text("#!/bin/sh\necho uv $1\nexit 3\n")
    uv.chmod(0o755)
    done = start_release(tmp_path)
    assert (done.returncode, done.stdout) == (3, "uv build\n")


@pytest.mark.skipif(any(Path(one, "uv").exists() for one in ("/usr/bin", "/bin")), reason="the system has a uv")
def test_a_release_without_uv_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    done = start_release(tmp_path)
    assert done.returncode == 1
    assert done.stderr == "scripts/release: uv is missing; please run tests/run once, or install it\n"


def test_what_others_build_is_pinned() -> None:
    """Actions by their commit, the image's base by its digest; a workflow may read the repository only."""
    workflow = (ROOT / ".github/workflows/ci.yml").read_text()
    jobs = yaml.safe_load(workflow)
    assert jobs["permissions"] == {"contents": "read"}
    uses = re.findall(r"uses: (\S+)", workflow)
    assert uses
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", one) for one in uses)
    assert ".ci/run" in workflow
    assert "scripts/release" in (ROOT / ".ci/run").read_text()
    base = re.search(r"^ARG BASE=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert base
    assert re.fullmatch(r"python:[\w.-]+@sha256:[0-9a-f]{64}", base[1])
