"""The application: which path and method is answered by what."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from ..llm import Engine, Template, Tokenizer
from .endpoints import ChatEndpoint, CompletionEndpoint, no_such_model
from .errors import ApiError
from .limits import Gate, check_key
from .service import Limits, Service


def application(
    engine: Engine,
    tokenizer: Tokenizer,
    template: Template | None = None,
    limits: Limits | None = None,
    *,
    name: str = "model",
    key: str | None = None,
    hosts: Collection[str] | None = None,
) -> Starlette:
    """Return an ASGI application that speaks OpenAI's API: completions, chat completions, models, and /health.

    `name` is the model's for clients; without a `template`, chat completions are refused. `key` and `hosts` are those
    of `Gate`. Source: OpenAI API reference. `application(…).state.service` is the `Service`; ending the application's
    lifespan closes it, and the engine with it.
    """
    if key is not None:
        check_key(key)
    service = Service(engine, tokenizer, template, limits or Limits(), name)

    async def check_health(request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok", "running": engine.running, "waiting": engine.waiting})

    async def list_models(request: Request) -> JSONResponse:
        return JSONResponse({"object": "list", "data": [_show_model(service)]})

    async def find_model(request: Request) -> JSONResponse:
        if request.path_params["model"] != service.name:
            raise no_such_model(request.path_params["model"])
        return JSONResponse(_show_model(service))

    @asynccontextmanager
    async def live(app: Starlette) -> AsyncIterator[None]:
        yield
        service.close()

    made = Starlette(
        routes=[
            Route("/health", check_health),
            Route("/v1/models", list_models),
            Route("/v1/models/{model:path}", find_model),
            Route("/v1/completions", CompletionEndpoint(service), methods=["POST"]),
            Route("/v1/chat/completions", ChatEndpoint(service), methods=["POST"]),
        ],
        middleware=[Middleware(Gate, key=key, hosts=hosts)],
        exception_handlers={HTTPException: _answer_http, ApiError: _answer_api},
        lifespan=live,
    )
    made.router.redirect_slashes = False
    made.state.service = service
    return made


def _show_model(service: Service) -> dict[str, Any]:
    return {"id": service.name, "object": "model", "created": service.created, "owned_by": "isokern"}


async def _answer_api(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiError)
    return error.respond()


async def _answer_http(request: Request, error: Exception) -> JSONResponse:
    """Answer an unknown path or a wrong method."""
    assert isinstance(error, HTTPException)
    codes = {404: "unknown_path", 405: "method_not_allowed"}
    message = f"{error.detail}: see the paths and methods of OpenAI's API"
    made = ApiError(error.status_code, message, code=codes.get(error.status_code), headers=error.headers)
    return made.respond()
