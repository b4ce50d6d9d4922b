"""Dockerfile, compose.yaml and manifests: what linters, schemas and the daemons' own flags say."""

import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from harness.commands import COMMANDS, variables
from harness.composition import COMPOSE, CONTAINER, TOP, composition, docker_compose, program
from harness.pages import section
from packaging.requirements import Requirement

from mq import __version__
from mq.model.limits import CHILD_END_S

DOCKERFILE = (CONTAINER / "Dockerfile").read_text(encoding="utf-8")
PAGE = section("deploy/OPERATE.md", "Containers")
MANIFESTS = sorted((CONTAINER / "kubernetes").glob("*.yaml"))
KUBERNETES = ("1.30", "1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37")
YAML_RULES = "{extends: default, rules: {document-start: disable, line-length: {max: 120}}}"
USER = 10001
DRAIN_S = 30
PORTS = {"mq": 8080, "mq-mover": 9101, "mq-reaper": 9102}


@pytest.fixture(scope="module")
def composed() -> dict[str, Any]:
    return composition()


def checked(name: str, *arguments: str) -> None:
    done = subprocess.run(
        [program(name), *arguments], cwd=TOP, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stdout


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each of the manifests that a cluster gets, with its file's name."""
    for path in MANIFESTS:
        if path.name != "kustomization.yaml":
            for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
                yield path.name, document


def kind(name: str) -> list[dict[str, Any]]:
    return [document for _, document in documents() if document["kind"] == name]


def deployments() -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each["spec"] for each in kind("Deployment")}


def pods() -> dict[str, dict[str, Any]]:
    return {name: each["template"]["spec"] for name, each in deployments().items()}


def parsed(command: list[str]) -> dict[str, Any]:
    """What a daemon makes of its command line."""
    program, *arguments = command
    return dict(COMMANDS[program].make_context("x", arguments).params)


def in_dockerfile(instruction: str) -> str:
    """What the last one of these says, its lines joined."""
    joined = DOCKERFILE.replace("\\\n", " ")
    return re.findall(rf"^{instruction} (.*)$", joined, re.MULTILINE)[-1]


# Each by itself.


def test_the_dockerfile_has_nothing_that_its_linter_minds() -> None:
    checked("hadolint", "--failure-threshold", "style", str(CONTAINER / "Dockerfile"))


def test_the_yaml_has_nothing_that_its_linter_minds() -> None:
    checked("yamllint", "--strict", "-d", YAML_RULES, str(CONTAINER))


def test_a_setting_of_the_composition_that_is_none_would_be_seen(tmp_path: Path) -> None:
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(COMPOSE.read_text().replace("read_only: true", "readonly: true", 1))
    done = docker_compose("-f", str(wrong), "config", "--quiet")
    assert done.returncode != 0
    assert "readonly" in done.stderr


@pytest.mark.parametrize("version", KUBERNETES)
def test_the_manifests_are_what_kubernetes_takes(version: str) -> None:
    for _, document in documents():
        kubernetes_validate.validate(document, version, strict=True)


def test_a_field_of_a_manifest_that_is_none_would_be_seen() -> None:
    (service,) = kind("Service")
    service["spec"]["selectors"] = service["spec"].pop("selector")
    with pytest.raises(kubernetes_validate.ValidationError, match="selectors"):
        kubernetes_validate.validate(service, KUBERNETES[-1], strict=True)


def test_the_kustomization_has_every_file() -> None:
    (read,) = yaml.safe_load_all((CONTAINER / "kubernetes/kustomization.yaml").read_text())
    there = {path.name for path in MANIFESTS} - {"kustomization.yaml"}
    assert set(read["resources"]) == there
    assert [each["name"] for each in read["images"]] == ["mq"]
    assert read["namespace"] == kind("Namespace")[0]["metadata"]["name"]


@pytest.mark.parametrize(
    "name", ["deploy/requirements.txt", "deploy/container/build-requirements.txt"]
)
def test_what_the_image_installs_is_pinned_and_in_range(name: str) -> None:
    content = (TOP / name).read_text(encoding="utf-8")
    entries = re.sub(r" *\\\n *", " ", re.sub(r"^ *#.*\n", "", content, flags=re.MULTILINE))
    pins = {}
    for entry in entries.splitlines():
        assert " --hash=sha256:" in entry, entry
        pin = Requirement(entry.partition(" --hash")[0])
        pins[re.sub("[-_.]+", "-", pin.name).lower()] = pin
    project = tomllib.loads((TOP / "pyproject.toml").read_text())
    wanted = project["build-system"]["requires"]
    if "build" not in name:
        extras = project["project"]["optional-dependencies"]
        wanted = [*project["project"]["dependencies"], *extras["jwt"], *extras["tracing"]]
        wanted += extras["zookeeper"]
    for each in map(Requirement, wanted):
        (exact,) = pins[re.sub("[-_.]+", "-", each.name).lower()].specifier
        assert exact.operator == "=="
        assert each.specifier.contains(exact.version), each


# What they say to the daemons.


def test_every_command_and_variable_is_one(composed: dict[str, Any]) -> None:
    known = set().union(*map(variables, COMMANDS.values()))
    said = [yaml.safe_load(in_dockerfile("CMD"))]
    named = set(re.findall(r"\b(MQ_\w+)=", in_dockerfile("ENV")))
    for name, service in composed["services"].items():
        if name != "zookeeper":
            said.append(service["command"])
            named |= set(service.get("environment") or {})
    for pod in pods().values():
        (each,) = pod["containers"]
        said.append([*each["command"], *each["args"]])
    (settings,) = kind("ConfigMap")
    assert named | set(settings["data"]) <= known
    assert {command[0] for command in said} == set(COMMANDS)
    for command in said:
        # A file of tokens is looked for when mq starts.
        parsed(command)


def test_values_of_the_settings_are_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    (settings,) = kind("ConfigMap")
    for name, value in settings["data"].items():
        monkeypatch.setenv(name, value)
    for name, command in COMMANDS.items():
        command.make_context("x", [], auto_envvar_prefix=name.replace("-", "_").upper())


def test_variables_that_the_page_names_are_known() -> None:
    known = set().union(*map(variables, COMMANDS.values()))
    known |= {"MQ_URL", "MQ_CA_FILE", "MQ_TOKEN_FILE", "MQ_TAG"}
    assert set(re.findall(r"\bMQ_[A-Z_]+", PAGE)) <= known


# What they say of each other.


def test_one_version_and_one_image(composed: dict[str, Any]) -> None:
    image = f"mq:{__version__}"
    services = composed["services"]
    assert {each["image"] for name, each in services.items() if name != "zookeeper"} == {image}
    (kustomized,) = yaml.safe_load_all((CONTAINER / "kubernetes/kustomization.yaml").read_text())
    assert kustomized["images"][0]["newTag"] == __version__
    for text in (PAGE, DOCKERFILE):
        assert set(re.findall(r"\bmq:\d+\.[\w.]+", text)) == {image}
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert len(set(bases)) == 1


def test_one_user_root_and_port(composed: dict[str, Any]) -> None:
    assert in_dockerfile("USER") == f"{USER}:{USER}"
    assert f"--uid {USER}" in DOCKERFILE
    (root,) = yaml.safe_load(in_dockerfile("VOLUME"))
    assert f"MQ_ROOT={root}" in in_dockerfile("ENV")
    assert f"MQ_PORT={PORTS['mq']}" in in_dockerfile("ENV")
    assert in_dockerfile("EXPOSE") == str(PORTS["mq"])
    for name, service in composed["services"].items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["deploy"]["resources"]["limits"].keys() == {"cpus", "memory", "pids"}
        assert service["healthcheck"]["test"][0] == "CMD"
        if name != "zookeeper":
            assert service["user"] == f"{USER}:{USER}"
            assert {"root": root}.items() <= {
                each["source"]: each["target"] for each in service["volumes"]
            }.items()
    for name, pod in pods().items():
        assert pod["enableServiceLinks"] is False, "a Service mq would say MQ_PORT"
        assert pod["automountServiceAccountToken"] is False
        security = pod["securityContext"]
        assert security["runAsNonRoot"]
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert {security[each] for each in ("runAsUser", "runAsGroup", "fsGroup")} == {USER}
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        assert mounts["root"] == root
        assert [port["containerPort"] for port in container["ports"]] == [PORTS[name]]
        claimed = pod["volumes"][0]["persistentVolumeClaim"]["claimName"]
        assert claimed == kind("PersistentVolumeClaim")[0]["metadata"]["name"]


def test_metrics_are_asked_for_where_they_are(composed: dict[str, Any]) -> None:
    for name in ("mq-mover", "mq-reaper"):
        service = composed["services"][name]
        told = parsed(service["command"])["metrics"]
        assert service["healthcheck"]["test"][-1] == f"http://127.0.0.1:{PORTS[name]}/metrics"
        assert told == ("127.0.0.1", PORTS[name])
        (container,) = pods()[name]["containers"]
        told = parsed([*container["command"], *container["args"]])["metrics"]
        assert told == ("0.0.0.0", PORTS[name])


def test_selectors_find_their_pods() -> None:
    labels = [each["template"]["metadata"]["labels"] for each in deployments().values()]
    finding = [each["selector"] for each in deployments().values()]
    finding += [each["spec"]["selector"] for each in kind("PodDisruptionBudget")]
    finding += [each["spec"]["podSelector"] for each in kind("NetworkPolicy")]
    wanted = [each.get("matchLabels", {}) for each in finding]
    wanted += [each["spec"]["selector"] for each in kind("Service")]
    for each in wanted:
        assert any(each.items() <= own.items() for own in labels), each
    ports = {port["name"] for pod in pods().values() for port in pod["containers"][0]["ports"]}
    for policy in kind("NetworkPolicy"):
        for rule in policy["spec"].get("ingress", []):
            assert {port["port"] for port in rule["ports"]} <= ports
    assert {
        port["targetPort"] for each in kind("Service") for port in each["spec"]["ports"]
    } <= ports


def test_there_is_time_to_drain(composed: dict[str, Any]) -> None:
    at_most_s = DRAIN_S + 2 * CHILD_END_S
    assert parsed(["mq"])["drain_timeout"] == DRAIN_S
    (settings,) = kind("ConfigMap")
    assert float(settings["data"]["MQ_DRAIN_TIMEOUT"]) == DRAIN_S
    pod = pods()["mq"]
    before_s = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] >= before_s + at_most_s
    for name in ("mq-1", "mq-2"):
        assert composed["services"][name]["stop_grace_period"] == "1m0s"
    assert at_most_s <= 60


def test_peers_are_the_others(composed: dict[str, Any]) -> None:
    (settings,) = kind("ConfigMap")
    assert int(settings["data"]["MQ_PEERS"]) == deployments()["mq"]["replicas"] - 1
    serving = [each for name, each in composed["services"].items() if re.match(r"mq-\d", name)]
    said = [each["environment"] for each in serving]
    assert {int(each["MQ_PEERS"]) for each in said} == {len(serving) - 1}
    assert sorted(int(each["MQ_PEER_INDEX"]) for each in said) == list(range(len(serving)))


# The page.


def test_what_the_page_points_to_is_there() -> None:
    for linked in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (TOP / "deploy" / linked).exists(), linked
    table = re.findall(r"^\| (`.*?`) \|", PAGE, re.MULTILINE)
    named = re.findall(r"`([\w./-]+\.(?:yaml|txt|cfg)|Dockerfile)`", " ".join(table))
    assert len(named) > 10
    for each in named:
        assert (CONTAINER / each).exists() or (CONTAINER / "kubernetes" / each).exists(), each


def test_docker_compose_knows_every_command_of_the_page(composed: dict[str, Any]) -> None:
    blocks = re.findall(r"```compose\n(.*?)```", PAGE, re.DOTALL)
    commands = [line for block in blocks for line in block.splitlines()]
    assert len(commands) > 10
    for line in commands:
        docker, compose, *arguments = shlex.split(line)
        assert (docker, compose) == ("docker", "compose")
        named = set(re.findall(r"\bmq-\w+\b", line)) - {"mq-backup"}
        assert named <= composed["services"].keys(), line
        # Behind the command, as what is behind a service's name is a command of its own.
        done = docker_compose(arguments[0], "--help", *arguments[1:])
        assert done.returncode == 0, f"{line}: {done.stderr}"
        assert f"docker compose {arguments[0]} [" in done.stdout
    assert f"export COMPOSE_FILE={COMPOSE.relative_to(TOP)}\n" in PAGE


def test_a_flag_that_docker_compose_does_not_know_would_be_seen() -> None:
    done = docker_compose("-f", str(COMPOSE), "run", "--help", "--remove", "mq-reaper")
    assert done.returncode != 0
    assert "--remove" in done.stderr


def test_what_the_page_has_the_image_run_is_a_command() -> None:
    commands = re.findall(rf" mq:{re.escape(__version__)} (mq(?:-\w+)? .*)$", PAGE, re.MULTILINE)
    assert commands
    for each in commands:
        if "--help" not in each:
            parsed(shlex.split(each))


def test_paths_of_the_page_s_kubectl_commands_are_there() -> None:
    named = re.findall(r"kubectl apply -[fk] (\S+)", PAGE)
    assert named
    for each in named:
        assert (TOP / each).exists()
    (secret,) = re.findall(r"create secret generic ([\w-]+) ", PAGE)
    volumes = pods()["mq"]["volumes"]
    assert secret in {each.get("secret", {}).get("secretName") for each in volumes}
