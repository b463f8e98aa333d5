"""Errors as answers: which status, and the sentence; as JSON, or as a page."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from lastword.errors import (
    BrokenFileError,
    ConflictError,
    LastwordError,
    MirrorError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    StoreError,
    TopicExistsError,
    UnknownGroupError,
    UnknownPassError,
    UnknownTopicError,
)
from lastword.ui.guard import HEADERS
from lastword.ui.render import rendered

_STATUSES: tuple[tuple[tuple[type[LastwordError], ...], int], ...] = (
    ((UnknownTopicError, UnknownGroupError, UnknownPassError, OffsetOutOfRangeError), 404),
    ((TopicExistsError, ConflictError, PolicyViolationError, MirrorError), 409),
    ((StoreError, BrokenFileError), 503),
)


def status_of(error: LastwordError) -> int:
    """The status that says whose fault it is."""
    return next((status for kinds, status in _STATUSES if isinstance(error, kinds)), 400)


def install(app: FastAPI) -> None:
    """Let every error of ours, and every unknown address, be answered in words."""

    @app.exception_handler(LastwordError)
    def _ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, LastwordError)
        return _answer(request, status_of(error), type(error).__name__, str(error))

    @app.exception_handler(Exception)
    def _fault(request: Request, error: Exception) -> Response:
        found = _answer(request, 500, type(error).__name__, f"This should not be: {error}")
        found.headers.update(HEADERS)  # for this one does not pass the guard
        return found

    @app.exception_handler(RequestValidationError)
    def _invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        return _answer(request, 422, "InvalidRequestError", f"{where}: {first['msg']}"[:500])

    @app.exception_handler(HTTPException)
    def _http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        found = _answer(request, error.status_code, "HTTPError", str(error.detail))
        found.headers.update(error.headers or {})
        return found


def _answer(request: Request, status: int, kind: str, sentence: str) -> Response:
    sentence = sentence.encode(errors="backslashreplace").decode()  # it may quote half a character
    if request.url.path.startswith("/api"):
        return JSONResponse({"error": kind, "message": sentence}, status)
    return rendered(request, "error.html", status=status, kind=kind, sentence=sentence)
