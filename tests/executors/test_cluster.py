"""Joining a cluster that is not there, or is none, ends in a sentence and at once."""

import socket

import pytest

from tuneparts.core.errors import ClusterError, ConfigError
from tuneparts.executors.ray import cluster

pytestmark = pytest.mark.ray


def test_an_address_where_nobody_listens_is_named() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    refused = rf"none does at `{address}`: .* refused"
    with pytest.raises(ClusterError, match=refused), cluster.joined(address):
        pass


def test_the_address_of_the_dashboard_is_not_that_of_the_cluster() -> None:
    address = "http://127.0.0.1:8265"
    with pytest.raises(ConfigError, match="HOST:PORT"), cluster.joined(address):
        pass
