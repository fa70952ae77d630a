"""HTTP plumbing shared by the simulated services: requests, responses, the threaded server.

Owns: reading a request (Content-Length and chunked bodies, gzip), writing a response (whole or streamed), and a stop that lets
running requests finish. Does not own any path or any rule of a service.
"""

import gzip
import json
import threading
import urllib.parse
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

STREAM_CHUNK_BYTES = 64 * 1024
IDLE_CONNECTION_SECONDS = 120.0


class BadRequestBody(Exception):
    """The body cannot be read as it was announced (not gzip although it says so, a broken chunk)."""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. ``path`` is percent-decoded; ``body`` is as sent (see ``plain_body``)."""

    method: str
    path: str
    raw_target: str
    query: list[tuple[str, str]]
    headers: Message
    body: bytes
    remote_addr: str

    def header(self, name: str, default: str = "") -> str:
        """A request header, or ``default``."""
        return str(self.headers.get(name, default))

    def plain_body(self) -> bytes:
        """The body with ``Content-Encoding: gzip`` undone.

        Raises:
            BadRequestBody: it is announced as gzip and is not.
        """
        if self.header("Content-Encoding").lower() != "gzip":
            return self.body
        try:
            return gzip.decompress(self.body)
        except (OSError, EOFError, zlib.error) as error:
            raise BadRequestBody(f"gzip: {error}") from error

    def segments(self) -> list[str]:
        """The path without its empty parts: ``/a//b/`` is ``["a", "b"]``."""
        return [part for part in self.path.split("/") if part]


@dataclass(slots=True)
class Response:
    """One HTTP response. An iterable body is streamed in chunks and never held as a whole."""

    status: int = 200
    body: bytes | Iterable[bytes] = b""
    headers: dict[str, str] = field(default_factory=dict)


Handler = Callable[[Request], Response]


def json_response(value: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """``value`` as a JSON body."""
    body = json.dumps(value).encode() + b"\n"
    return Response(status=status, body=body, headers={"Content-Type": "application/json", **(headers or {})})


def text_response(text: str, *, status: int = 200, content_type: str = "text/plain; charset=utf-8") -> Response:
    """``text`` as the body."""
    return Response(status=status, body=text.encode(), headers={"Content-Type": content_type})


def gzip_stream(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Compress a stream as it passes, in constant memory."""
    compressor = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    for chunk in chunks:
        packed = compressor.compress(chunk)
        if packed:
            yield packed
    yield compressor.flush()


class SimulatorServer(ThreadingHTTPServer):
    """A threaded server that counts the requests in progress, so that a stop can wait for them."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: Handler) -> None:
        self.handler = handler
        self._running = 0
        self._idle = threading.Condition()
        super().__init__(address, _HttpRequestHandler)

    @contextmanager
    def running(self) -> Iterator[None]:
        """One request is in progress."""
        with self._idle:
            self._running += 1
        try:
            yield
        finally:
            with self._idle:
                self._running -= 1
                self._idle.notify_all()

    def wait_idle(self, timeout_seconds: float) -> bool:
        """Wait until no request is in progress; False when the time is over first."""
        with self._idle:
            return self._idle.wait_for(lambda: self._running == 0, timeout_seconds)


class _HttpRequestHandler(BaseHTTPRequestHandler):
    """Turns the socket into a Request and a Response into bytes."""

    protocol_version = "HTTP/1.1"
    server_version = "wms2-simulators"
    sys_version = ""
    timeout = IDLE_CONNECTION_SECONDS
    # Answers are small and written in two parts (headers, body): without this each waits for the other side's delayed ACK.
    disable_nagle_algorithm = True
    wbufsize = 64 * 1024

    def _serve(self) -> None:
        server = cast(SimulatorServer, self.server)
        with server.running():
            try:
                self._write(server.handler(self._read()))
            except BadRequestBody as error:
                self.close_connection = True
                self._write(text_response(f"{error}\n", status=400))
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the client went away: there is no one to answer

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _serve

    def _read(self) -> Request:
        target = urllib.parse.urlsplit(self.path)
        return Request(
            method=self.command,
            path=urllib.parse.unquote(target.path),
            raw_target=self.path,
            query=urllib.parse.parse_qsl(target.query, keep_blank_values=True),
            headers=self.headers,
            body=self._read_body(),
            remote_addr=f"{self.client_address[0]}:{self.client_address[1]}",
        )

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            return b"".join(self._read_chunks())
        length = self.headers.get("Content-Length", "0")
        if not length.isdigit():
            raise BadRequestBody(f"Content-Length {length!r} is not a number")
        body = self.rfile.read(int(length))
        if len(body) != int(length):
            raise BadRequestBody(f"the body ended after {len(body)} of {length} bytes")
        return body

    def _read_chunks(self) -> Iterator[bytes]:
        while True:
            head = self.rfile.readline().split(b";")[0].strip()
            try:
                size = int(head, 16)
            except ValueError as error:
                raise BadRequestBody(f"broken chunk header {head!r}") from error
            if size == 0:
                while self.rfile.readline().strip():
                    pass
                return
            yield self.rfile.read(size)
            self.rfile.readline()

    def _write(self, response: Response) -> None:
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        if isinstance(response.body, bytes):
            self.send_header("Content-Length", str(len(response.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(response.body)
            self.wfile.flush()
        else:
            self._write_stream(response.body)

    def _write_stream(self, chunks: Iterable[bytes]) -> None:
        try:
            if self.command == "HEAD":
                self.end_headers()
                return
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for chunk in chunks:
                if chunk:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()
        finally:
            close = getattr(chunks, "close", None)
            if close is not None:
                close()  # frees the database connection of a read that the client did not finish

    def log_message(self, format: str, *args: Any) -> None:
        """The base class writes a line to stderr for each request."""
