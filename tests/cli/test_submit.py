"""Submitting against a job server that speaks Ray's protocol, without a cluster behind it."""

import asyncio
import io
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from typer.testing import CliRunner

from tuneparts.cli.main import app
from tuneparts.core.errors import ClusterError, ConfigError, SecurityError, UnknownNameError

SECRET = "planted-secret-value"


class JobServer:
    """What a head node answers; `ends` says how the job ends."""

    def __init__(self) -> None:
        self.ends: dict[str, Any] = {"status": "SUCCEEDED", "driver_exit_code": 0}
        self.token: str | None = None
        self.trouble = ""
        self.drops = 0
        """How often the log connection breaks before it is whole."""
        self.jobs: list[dict[str, Any]] = []
        self.packages: dict[str, bytes] = {}
        self._ends_later: dict[str, Any] = {}
        self.address = ""
        self.runner: web.AppRunner | None = None

    async def version(self, request: web.Request) -> web.Response:
        if self.token is not None and self.token not in str(request.headers):
            return web.Response(status=401, text="who are you?")
        return web.json_response({"version": "4", "ray_version": "2.60.0", "ray_commit": "x"})

    async def has(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if request.path in self.packages else 404)

    async def take(self, request: web.Request) -> web.Response:
        self.packages[request.path] = await request.read()
        return web.Response()

    async def submit(self, request: web.Request) -> web.Response:
        if self.trouble:
            return web.Response(status=500, text=self.trouble)
        self.jobs.append(await request.json())
        return web.json_response({"job_id": "job1", "submission_id": "job1"})

    async def job(self, request: web.Request) -> web.Response:
        facts = {"type": "SUBMISSION", "submission_id": "job1", "entrypoint": "x"}
        return web.json_response(facts | {"message": "why it ended"} | self.ends)

    async def tail(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str("first line\n")
        if self.drops:
            self.drops -= 1
            self._ends_later = self._ends_later or dict(self.ends)
            self.ends["status"] = "RUNNING"  # until somebody has come back for the rest
            await socket.close(code=1001)
            return socket
        self.ends |= self._ends_later
        await socket.send_str("second line\n")
        await socket.close()
        return socket

    async def start(self) -> None:
        server = web.Application(client_max_size=1 << 30)
        server.router.add_get("/api/version", self.version)
        server.router.add_get("/api/packages/{kind}/{name}", self.has)
        server.router.add_put("/api/packages/{kind}/{name}", self.take)
        server.router.add_post("/api/jobs/", self.submit)
        server.router.add_get("/api/jobs/{job}", self.job)
        server.router.add_get("/api/jobs/{job}/logs/tail", self.tail)
        self.runner = web.AppRunner(server)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        self.address = f"http://127.0.0.1:{port}"

    async def end(self) -> None:
        assert self.runner is not None
        await self.runner.cleanup()


@pytest.fixture
def server(monkeypatch) -> Iterator[JobServer]:
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "TUNEPARTS_RAY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    made = JobServer()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(made.start(), loop).result(10)
    yield made
    asyncio.run_coroutine_threadsafe(made.end(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()


@pytest.fixture
def search_file(tmp_path) -> Path:
    path = tmp_path / "asked.py"
    path.write_text('"""What?"""\n')
    return path


def invoke(*words: str) -> Any:
    return CliRunner().invoke(app, ["submit", *words], catch_exceptions=False)


def test_code_search_and_command_reach_the_cluster(server, search_file) -> None:
    done = invoke(
        str(search_file), "--address", server.address, "--scale", "smoke", "--trials", "3",
        "--seeds", "0,1", "--arms", "a,b", "--set", "a.x=it's",
        "--storage", "s3://bucket/x", "--env", "A=b",
    )  # fmt: skip
    assert done.exit_code == 0
    assert "first line\nsecond line\n" in done.output
    (job,) = server.jobs
    assert job["entrypoint"] == (
        "python -m tuneparts.cli.main search searches/asked.py --address auto --scale smoke "
        "--trials 3 --seeds 0,1 --arms a,b --set 'a.x=it'\"'\"'s' --storage s3://bucket/x"
    )
    assert job["runtime_env"]["env_vars"]["A"] == "b"
    assert job["runtime_env"]["env_vars"]["TUNEPARTS_COMMIT"]
    (package,) = server.packages.values()
    names = zipfile.ZipFile(io.BytesIO(package)).namelist()
    assert "searches/asked.py" in names
    assert "tuneparts/executors/ray/cluster.py" in names
    assert not [name for name in names if "__pycache__" in name]
    assert len(package) < 5_000_000


def test_modules_beside_the_search_reach_the_cluster(server, search_file) -> None:
    folder = search_file.parent
    search_file.write_text('"""What?"""\nimport shared\nfrom studies.one import thing\n')
    (folder / "shared.py").write_text("import deeper\n")
    (folder / "deeper.py").write_text("import os\n")
    (folder / "private_letters.py").write_text("nobody imports this\n")
    (folder / "studies").mkdir()
    (folder / "studies" / "one.py").write_text("thing = 1\n")
    assert invoke(str(search_file), "--address", server.address).exit_code == 0
    (package,) = server.packages.values()
    names = zipfile.ZipFile(io.BytesIO(package)).namelist()
    assert {name for name in names if name.startswith("searches/") and name.endswith(".py")} == {
        "searches/asked.py",
        "searches/shared.py",
        "searches/deeper.py",
        "searches/studies/one.py",
    }


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        ({"status": "FAILED", "driver_exit_code": 2}, 2),
        ({"status": "FAILED", "driver_exit_code": None}, 1),
        ({"status": "FAILED", "driver_exit_code": 0}, 1),
        ({"status": "STOPPED", "driver_exit_code": None}, 130),
    ],
)
def test_the_exit_code_is_passed_on(server, search_file, ends: dict[str, Any], code: int) -> None:
    server.ends = ends
    done = invoke(str(search_file), "--address", server.address)
    assert done.exit_code == code
    assert "why it ended" in done.output


def test_a_broken_connection_repeats_nothing(server, search_file) -> None:
    server.drops = 1
    done = invoke(str(search_file), "--address", server.address)
    assert done.exit_code == 0
    assert done.output.count("first line") == 1
    assert done.output.count("second line") == 1


RUN = "asked/20261117-060811Z-4ecf44a7e5ff"


def test_a_run_of_the_cluster_is_continued(server) -> None:
    done = invoke(RUN, "--address", server.address, "--results", "/srv/results", "--retry-failed")
    assert done.exit_code == 0
    (job,) = server.jobs
    assert job["entrypoint"] == (
        f"python -m tuneparts.cli.main resume {RUN} --address auto --retry-failed"
    )
    assert job["runtime_env"]["env_vars"]["TUNEPARTS_RESULTS"] == "/srv/results"


def test_a_search_is_continued_if_it_has_begun(server, search_file) -> None:
    invoke(str(search_file), "--address", server.address, "--resume")
    (job,) = server.jobs
    assert job["entrypoint"].endswith("searches/asked.py --address auto --scale cpu --resume")


def test_a_run_cannot_be_changed_and_a_search_has_no_failed_trials(server, search_file) -> None:
    with pytest.raises(ConfigError, match="a run goes on as it began"):
        invoke(RUN, "--address", server.address, "--trials", "3")
    with pytest.raises(ConfigError, match="failed trials are those of a run"):
        invoke(str(search_file), "--address", server.address, "--retry-failed")
    with pytest.raises(ConfigError, match="--results results: not an absolute path"):
        invoke(str(search_file), "--address", server.address, "--results", "results")
    assert server.jobs == []


def test_a_job_does_not_write_results_into_its_temporary_folder(monkeypatch, tmp_path) -> None:
    from tuneparts.cli._running import refuse_temporary_results

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TUNEPARTS_RESULTS", raising=False)
    monkeypatch.delenv("RAY_JOB_CONFIG_JSON_ENV_VAR", raising=False)
    refuse_temporary_results()  # on one's own machine they lie where one is
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    with pytest.raises(ConfigError, match=r"--results PATH"):
        refuse_temporary_results()
    for words in (["search", "rotated_digits"], ["resume"]):
        with pytest.raises(ConfigError, match=r"Ray removes this results folder"):
            CliRunner().invoke(app, words, catch_exceptions=False)
    monkeypatch.setenv("TUNEPARTS_RESULTS", str(tmp_path.parent / "elsewhere"))
    refuse_temporary_results()


def test_not_followed_returns_at_once(server, search_file) -> None:
    done = invoke(str(search_file), "--address", server.address, "--no-follow")
    assert done.exit_code == 0
    assert "ray job logs" in done.output
    assert "first line" not in done.output


def test_no_secret_leaves_this_machine(server, search_file, monkeypatch) -> None:
    monkeypatch.setenv("MY_TOKEN", SECRET)
    for pair in (f"A={SECRET}", "DB_PASSWORD=x", "URI=postgresql://me:pw@db/x"):
        with pytest.raises(SecurityError, match="looks like a secret") as caught:
            invoke(str(search_file), "--address", server.address, "--env", pair)
        assert SECRET not in str(caught.value)
    with pytest.raises(SecurityError, match="carries no key"):
        invoke(str(search_file), "--address", server.address, "--storage", "s3://a:pw@b")
    with pytest.raises(SecurityError, match="shown to all who see") as caught:
        invoke(str(search_file), "--address", server.address, "--set", f"a.b={SECRET}")
    assert SECRET not in str(caught.value)
    assert server.jobs == []
    assert invoke(str(search_file), "--address", server.address).exit_code == 0
    assert SECRET not in str(server.jobs)


def test_a_secret_in_a_search_file_is_told_before_it_travels(server, search_file) -> None:
    lines = len(search_file.read_text().splitlines())
    with search_file.open("a") as file:
        file.write('# password="hunter2hunter2"\n')
    told = invoke(str(search_file), "--address", server.address)
    assert told.exit_code == 0
    assert f"line {lines + 1} of it looks like a secret" in told.stderr
    assert "hunter2" not in told.output


def test_mistakes_are_answered_with_the_cure(server, search_file) -> None:
    with pytest.raises(ConfigError, match="http://HOST:PORT"):
        invoke(str(search_file), "--address", "host:6379")
    with pytest.raises(ConfigError, match="NAME=VALUE"):
        invoke(str(search_file), "--address", server.address, "--env", "nothing")
    with pytest.raises(UnknownNameError, match="known search"):
        invoke("nothing", "--address", server.address)
    with pytest.raises(ClusterError, match=r"127\.0\.0\.1:9: .*ssh -L"):
        invoke(str(search_file), "--address", "http://127.0.0.1:9")
    server.token = "right"
    with pytest.raises(SecurityError, match="TUNEPARTS_RAY_TOKEN_FILE"):
        invoke(str(search_file), "--address", server.address)
    assert server.jobs == []


@pytest.mark.parametrize(
    ("trouble", "cure"), [("No available agent", "ray start --head"), ("odd", "ray job list")]
)
def test_what_the_job_server_answers_is_a_sentence(
    server, search_file, trouble: str, cure: str
) -> None:
    server.trouble = trouble
    with pytest.raises(ClusterError, match=f"job server .*500.*{trouble}.* .*{cure}") as told:
        invoke(str(search_file), "--address", server.address)
    assert "\n" not in str(told.value)
