"""How the ad server refuses a whole request: problem documents, with the statuses of its own errors."""

from fastapi import FastAPI, Request, Response

from maskedlark.adserver.errors import WrongContentType
from maskedlark.errors import MaskedLarkError
from maskedlark.storage.errors import StorageUnavailable
from maskedlark.web import answers, problem
from maskedlark.web.problem import Problem

_STATUS: dict[type[MaskedLarkError], int] = {
    WrongContentType: 415,
    StorageUnavailable: 503,
}


def install(app: FastAPI) -> None:
    """Let the app answer every error with a problem document."""
    answers.install(app)
    for error in _STATUS:
        app.add_exception_handler(error, _answer)


async def _answer(_: Request, error: Exception) -> Response:
    cls = type(error)
    assert issubclass(cls, MaskedLarkError)
    status = next(_STATUS[each] for each in cls.__mro__ if each in _STATUS)
    headers = {"Retry-After": str(answers.RETRY_AFTER_S)} if status == 503 else None
    found = Problem(f"/problems/{problem.slug(cls)}", str(cls.__doc__), status, str(error))
    return Response(found.encode(), status, headers, problem.MEDIA_TYPE)
