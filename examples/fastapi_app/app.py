"""An agent's backend on FastAPI: snapshots are written in its own transaction, and memory is read back from it."""

import os
from typing import Annotated

from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from mneme_client import InvalidInput, SnapshotConflict, aio
from pydantic import AwareDatetime, BaseModel
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

app = FastAPI()
new_session = async_sessionmaker(create_async_engine(os.environ["DATABASE_URL"], hide_parameters=True))


class Snapshot(BaseModel):
    """A summary of messages of the conversation that are about to leave the model's context."""

    span_start: int
    span_end: int
    content: str
    started_at: AwareDatetime | None = None
    ended_at: AwareDatetime | None = None


@app.post("/sessions/{session_id}/snapshots", status_code=201)
async def write(session_id: str, snapshot: Snapshot) -> dict[str, str]:
    """Write a snapshot. The session is sent to the worker when the block has committed."""
    async with new_session.begin() as session:
        node_id = await aio.write_snapshot(session, session_id, **snapshot.model_dump())
    return {"id": str(node_id)}


@app.get("/sessions/{session_id}/memory", response_class=PlainTextResponse)
async def read(session_id: str, token_budget: Annotated[int, Query(ge=0)] = 100_000) -> str:
    """Return what to put into the agent's context."""
    async with new_session() as session:
        return await aio.memory(session, session_id, token_budget)


@app.exception_handler(InvalidInput)
@app.exception_handler(SnapshotConflict)
async def refused(_: Request, error: Exception) -> JSONResponse:
    """Tell the caller what was wrong with the snapshot."""
    return JSONResponse({"error": str(error)}, 409 if isinstance(error, SnapshotConflict) else 422)
