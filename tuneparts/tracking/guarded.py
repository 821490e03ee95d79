"""MLflow's server behind a token, as an app plugin: `mlflow server --app-name tuneparts`."""

import json
from collections.abc import MutableMapping
from typing import Any

from tuneparts.core.doorkeeper import App, Doorkeeper, Receive, Scope, Send

CHOICES = {
    "mlflow.workflowType_v1": '"machine_learning"',
    "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1": "true",
}
"""What MLflow's pages keep in the browser: the kind of work that their reader does, and that the
assistant, which takes a quarter of a laptop's screen, need not open by itself."""
_SCRIPT = (
    "<script>for (const [key, value] of Object.entries("
    + json.dumps(CHOICES)
    + ")) localStorage.getItem(key) ?? localStorage.setItem(key, value)</script>"
).encode()
_CONDITIONS = {b"if-none-match", b"if-modified-since", b"accept-encoding"}


def create_app() -> Doorkeeper:
    """MLflow's application, for those who know the token in this process's environment."""
    from mlflow.server.fastapi_app import app

    return Doorkeeper(RunsFirst(app))


class RunsFirst:
    """An ASGI application in front of MLflow's, whose experiments open on their runs.

    MLflow 3.17 asks neither the experiment's tag nor its content which view to open on a click,
    but a choice that the browser keeps, and without one it opens the view for language models. So
    its page comes with `CHOICES` made, unless its reader has made them before.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        # The page as it was kept by the browser would be without the choices.
        headers = [pair for pair in scope["headers"] if pair[0] not in _CONDITIONS]
        answer = _Rewritten(send)
        await self._app({**scope, "headers": headers}, receive, answer)


class _Rewritten:
    """Holds a page back until all of it is there, and sends it with the choices in its head."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._start: MutableMapping[str, Any] = {}
        self._body = b""

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        self._body += message.get("body", b"")
        if message.get("more_body", False):
            return
        body = self._body.replace(b"<head>", b"<head>" + _SCRIPT, 1)
        headers = [
            (name, str(len(body)).encode() if name.lower() == b"content-length" else value)
            for name, value in self._start["headers"]
            if name.lower() not in {b"etag", b"last-modified"}
        ]
        await self._send({**self._start, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})
