"""`tuneparts ui`: MLflow's own view of the store."""

from tuneparts import binding, credentials, settings
from tuneparts.cli import opening
from tuneparts.redaction import redact

PORT = 5000
"""Where it listens unless told otherwise."""


def ui(
    *, host: str, port: int, forced: bool, open_page: bool = False, is_verbose: bool = False
) -> None:
    """Serve MLflow's UI on the store, or say where the server is."""
    from tuneparts.tracking import card, serving, store

    uri = settings.current().tracking_uri
    if store.is_server(uri):
        print(f"The store is a server; open {redact(uri)}")
        if open_page:
            opening.open_now(uri)
        return
    login = credentials.tracking_login()
    server = serving.plan(
        uri, host=host, port=port, login=login, forced=forced, is_verbose=is_verbose
    )
    binding.refuse_used(host, port)
    where = binding.LOOPBACK if binding.is_loopback(host) else host
    token = "" if server.token is None else f"?token={server.token}"
    address = f"http://{where}:{port}/{token}#/experiments?{card.RUNS_VIEW}"
    asks = "" if login is None else f", as {login.user}"
    print(f"MLflow UI on {address}{asks} (Ctrl-C ends it)", flush=True)
    if open_page:
        opening.open_when_ready(address, where, port)
    serving.run(server)
