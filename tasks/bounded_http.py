"""An HTTP client that a server cannot fill the memory of, or lead elsewhere."""

from collections.abc import AsyncIterator

import httpx2
import openai

MAX_BODY_BYTES = 4 * 2**20
MAX_ENCODED_BODY_BYTES = 2**18  # of a compressed body, which may become a thousand times as much


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, most: int) -> None:
        self._stream, self._left = stream, most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._left -= len(chunk)
            if self._left < 0:
                raise httpx2.ReadError("the answer is larger than any summary")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class _BoundedTransport(httpx2.AsyncHTTPTransport):
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        if isinstance(response.stream, httpx2.AsyncByteStream):
            encoded = response.headers.get("content-encoding", "identity") != "identity"
            most = MAX_ENCODED_BODY_BYTES if encoded else MAX_BODY_BYTES
            response.stream = _BoundedStream(response.stream, most)
        return response


def bounded_http_client() -> httpx2.AsyncClient:
    """Return a client whose answers are bounded, errors included, and that follows no redirect."""
    return openai.DefaultAsyncHttpxClient(
        transport=_BoundedTransport(), follow_redirects=False, headers={"accept-encoding": "identity"}
    )
