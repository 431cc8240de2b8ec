"""A web service: each question is a run, its answer a stream of server-sent events.

    uvicorn --app-dir docs/examples web:app
    curl -N localhost:8000/ask -H 'content-type: application/json' \
        -d '{"prompt": "What is in a HELLO?", "session": "s1"}'

Questions of one session see each other. A client that leaves cancels its run.
"""

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

import purra
from purra.values import thaw

__all__ = ["app", "create_app"]

ROOT = Path(__file__).parents[2]


class Question(BaseModel):
    prompt: str
    session: str = ""


class Answer(StreamingResponse):
    """One run while it goes on: drafts of its text, then its result."""

    def __init__(self, run: purra.Run) -> None:
        super().__init__(self._frames(), media_type="text/event-stream")
        self.headers["x-run"] = run.id
        self._run = run
        self._over = False

    async def _frames(self) -> AsyncIterator[str]:
        # A draft of another attempt replaces all before it: the model was asked once more.
        async for draft in self._run.output():
            yield frame("draft", {"attempt": draft["attempt"], "text": draft["text"]})
        result = await self._run.wait()
        self._over = True
        yield frame(
            "result",
            {"status": result.status, "text": result.text, "error": thaw(result.error)},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            if not self._over:
                await self._run.cancel()


def frame(kind: str, data: dict[str, Any]) -> str:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n"


def create_app(opening: AbstractAsyncContextManager[purra.Kernel]) -> FastAPI:
    """`opening`: `purra.open_kernel(…)`, or a `purra.Kernel(…)`; open as long as the app is."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        async with opening as app.state.kernel:
            yield

    app = FastAPI(lifespan=life)

    @app.post("/ask")
    async def ask(question: Question, request: Request) -> Answer:
        kernel: purra.Kernel = request.app.state.kernel
        return Answer(await kernel.submit(question.prompt, session=question.session))

    @app.exception_handler(purra.PurraError)
    async def refused(request: Request, error: purra.PurraError) -> JSONResponse:
        told = {"code": error.code, "message": error.message, "hint": error.hint}
        return JSONResponse(told, status_code=409 if error.code == "session_busy" else 400)

    return app


app = create_app(
    purra.open_kernel(ROOT / "manifests/quickstart.toml", params={"root": ROOT / "docs/spec"})
)
