"""A real HTTP endpoint that speaks chat completions as the test tells it to."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[["Call"], None]


@dataclass
class Call:
    """One request, and the means to answer it."""

    body: dict[str, Any]
    headers: dict[str, str]
    handler: BaseHTTPRequestHandler
    number: int

    @property
    def prompt(self) -> str:
        return "\n".join(str(message["content"]) for message in self.body["messages"])

    @property
    def user(self) -> str:
        return str(self.body["messages"][-1]["content"])

    def send(self, status: int, body: str, content_type: str = "application/json", **headers: str) -> None:
        data = body.encode()
        self.handler.send_response(status)
        self.handler.send_header("content-type", content_type)
        self.handler.send_header("content-length", str(len(data)))
        for name, value in headers.items():
            self.handler.send_header(name.replace("_", "-"), value)
        self.handler.end_headers()
        self.handler.wfile.write(data)


def completion(calls: list[tuple[str, str]], *, finish_reason: str = "tool_calls", content: str | None = None) -> str:
    message = {
        "role": "assistant",
        "content": content,
        "tool_calls": [
            {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for n, (name, arguments) in enumerate(calls)
        ],
    }
    return json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "scripted",
            "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
            "usage": {"prompt_tokens": 700, "completion_tokens": 40, "total_tokens": 740},
        }
    )


def saves(text: str = "A summary.", *, after_seconds: float = 0.0) -> Answer:
    def answer(call: Call) -> None:
        time.sleep(after_seconds)
        call.send(200, completion([("save_snapshot", json.dumps({"text": text}))]))

    return answer


def declines(call: Call) -> None:
    call.send(200, completion([("everything_ok", "{}")]))


def fails(status: int, code: str | None = None, **headers: str) -> Answer:
    def answer(call: Call) -> None:
        error = {"message": f"it failed; the prompt was: {call.user}", "type": "x", "param": None, "code": code}
        call.send(status, json.dumps({"error": error}), **headers)

    return answer


def replies(body: str, content_type: str = "application/json") -> Answer:
    return lambda call: call.send(200, body, content_type)


def drops(call: Call) -> None:
    call.handler.connection.shutdown(socket.SHUT_RDWR)
    call.handler.close_connection = True


def drips(call: Call) -> None:
    """Send one byte a second, for ever: a client whose timeout is per read waits as long."""
    call.handler.send_response(200)
    call.handler.send_header("content-type", "application/json")
    call.handler.send_header("content-length", "100000")
    call.handler.end_headers()
    for _ in range(600):
        call.handler.wfile.write(b" ")
        call.handler.wfile.flush()
        time.sleep(1)


def _flood(call: Call, status: int) -> None:
    call.handler.send_response(status)
    call.handler.send_header("content-type", "application/json")
    call.handler.send_header("connection", "close")
    call.handler.end_headers()
    for _ in range(1000):
        call.handler.wfile.write(b" " * 2**20)


def floods(call: Call) -> None:
    """Send a gigabyte of white space."""
    _flood(call, 200)


def floods_with_an_error(call: Call) -> None:
    _flood(call, 500)


@dataclass
class ModelServer:
    url: str = ""
    answer: Answer = field(default_factory=saves)
    calls: list[Call] = field(default_factory=list)
    under_way: int = 0

    def wait_for_calls(self, count: int, timeout_seconds: float = 20) -> None:
        until = time.monotonic() + timeout_seconds
        while len(self.calls) < count:
            assert time.monotonic() < until, f"{len(self.calls)} of {count} calls came"
            time.sleep(0.02)


@contextmanager
def model_server() -> Iterator[ModelServer]:
    state = ModelServer()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with lock:
                call = Call(body, {k.lower(): v for k, v in self.headers.items()}, self, len(state.calls) + 1)
                state.calls.append(call)
                state.under_way += 1
            try:
                state.answer(call)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the client gave up, or was killed
            finally:
                with lock:
                    state.under_way -= 1

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False
        request_queue_size = 128

        def handle_error(self, *_: object) -> None:
            pass  # a killed worker leaves a broken connection behind

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# ------------------------------------------------------------------------------------------------ kinds of servers


def calls_tools(*calls: tuple[str, str], **more: Any) -> Answer:
    return lambda call: call.send(200, completion(list(calls), **more))


def says_text(text: str | None, finish_reason: str = "stop", **more: Any) -> Answer:
    def answer(call: Call) -> None:
        body = json.loads(completion([], content=text, finish_reason=finish_reason))
        body["choices"][0]["message"] |= more
        call.send(200, json.dumps(body))

    return answer


def first(answer: Answer, then: Answer | None = None, *, times: int = 1) -> Answer:
    """Answer so many times with the one, then for ever with the other: a sound summary by default."""
    sound = then or saves("Short.")
    return lambda call: (answer if call.number <= times else sound)(call)


def refuses(*parameters: str, status: int = 400, named: bool = True, values: dict[str, Any] | None = None) -> Answer:
    """Refuse requests that have any of the parameters (or one with the given value), as a server that does not know it."""

    def answer(call: Call) -> None:
        for name in parameters:
            if name in call.body and call.body[name] == (values or {}).get(name, call.body[name]):
                error = {"message": "no", "type": "x", "param": name if named else None, "code": None}
                return call.send(status, json.dumps({"error": error}))
        return saves("Short.")(call)

    return answer


def refuses_as_fastapi(parameter: str) -> Answer:
    def answer(call: Call) -> None:
        if parameter in call.body:
            detail = [{"type": "extra_forbidden", "loc": ["body", parameter], "msg": "no", "input": 1}]
            return call.send(422, json.dumps({"detail": detail}))
        return saves("Short.")(call)

    return answer
