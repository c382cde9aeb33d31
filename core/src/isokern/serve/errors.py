"""The errors of the API: OpenAI's error object, and the HTTP status of each kind of error."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse

from ..status import IsokernError, Status, quote, shorten

log = logging.getLogger("isokern.serve")
SHOWN = 200  # characters of a client's value in a message
TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
# Errors that no request explains: the operator of the server has to look
OURS = {
    Status.INTERNAL_ERROR: 500,
    Status.DEVICE_NOT_AVAILABLE: 500,
    Status.NOT_IMPLEMENTED: 500,
    Status.OUT_OF_MEMORY: 503,
}


class ApiError(Exception):
    """An answer other than 200: its HTTP status, and what OpenAI's error object has of it.

    `param` is the field that is wrong, and `code` the kind of mistake in one word, if there is one.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.headers = status, message, code, dict(headers or {})
        self.param = None if param is None else shorten(param, SHOWN)

    @property
    def document(self) -> dict[str, Any]:
        """The error object (OpenAI API reference, error codes)."""
        kind = TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def respond(self) -> JSONResponse:
        """Return the answer."""
        return JSONResponse(self.document, self.status, self.headers)


class Disconnected(Exception):
    """The client went away: no answer can be delivered."""


def wrong_value(name: str, given: object, allowed: str) -> ApiError:
    """Return the error of a field whose value is not allowed."""
    message = f"{shorten(name, SHOWN)}: {shorten(quote(given), SHOWN)} is not allowed; allowed: {allowed}"
    return ApiError(400, message, param=name, code="invalid_value")


def translate(error: BaseException, param: str | None = None) -> ApiError:
    """Return the answer for an error of the library; an error without a type of Isokern's is reported without details.

    If the server is at fault, the log has the place.
    """
    if isinstance(error, ApiError):
        return error
    status = OURS.get(error.status, 400) if isinstance(error, IsokernError) else 500
    if status >= 500:
        _log_failure(error)
    if not isinstance(error, IsokernError):
        return ApiError(500, "the server failed; its log has the place", code="internal_error")
    return ApiError(status, str(error), param=param if status == 400 else None, code=error.status.name.lower())


def _log_failure(error: BaseException) -> None:
    """Log the place at which an error was raised; its message may have a client's text."""
    places = traceback.extract_tb(error.__traceback__)[-3:]
    where = " < ".join(f"{place.filename}:{place.lineno}" for place in reversed(places))
    log.error("%s at %s", type(error).__name__, where)
