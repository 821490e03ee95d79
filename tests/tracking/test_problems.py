import logging

import pytest
from mlflow.exceptions import MlflowException, RestException
from requests import HTTPError, Response
from sqlalchemy.exc import OperationalError

from tuneparts.tracking.problems import Problems, curable, is_gone


def http_error(status: int) -> HTTPError:
    response = Response()
    response.status_code = status
    return HTTPError(response=response)


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("refused"),
        TimeoutError(),
        OSError(28, "No space left on device"),
        OperationalError("insert", {}, Exception("database is locked")),
        MlflowException("API request to http://x failed with exception refused"),
        MlflowException(
            "API request to endpoint /x failed with error code 404 != 200. Response body: proxy",
            error_code=5,
        ),
        RestException({"error_code": "TEMPORARILY_UNAVAILABLE", "message": ""}),
        RestException({"error_code": "INTERNAL_ERROR", "message": ""}),
        RestException({"error_code": "UNAUTHENTICATED", "message": ""}),
        http_error(503),
    ],
)
def test_waiting_cures(error: Exception) -> None:
    assert curable(error)


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError("report.html"),
        TypeError("a bug"),
        MlflowException.invalid_parameter_value("name"),
        RestException({"error_code": "RESOURCE_DOES_NOT_EXIST", "message": ""}),
        RestException({"error_code": "INVALID_PARAMETER_VALUE", "message": ""}),
        http_error(404),
    ],
)
def test_waiting_is_in_vain(error: Exception) -> None:
    assert not curable(error)


def test_a_run_that_is_gone() -> None:
    assert is_gone(RestException({"error_code": "RESOURCE_DOES_NOT_EXIST", "message": ""}))
    assert not is_gone(MlflowException.invalid_parameter_value("name"))
    assert not is_gone(ConnectionError())


def test_each_kind_is_logged_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    problems = Problems()
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            problems.add("left out", f"number {number}", 2)
        problems.add("other", "reason")
    assert problems.lines() == ["left out (6): number 0", "other (1): reason"]
    assert len(caplog.records) == 2
