"""A mail server on this machine: it speaks SMTP over a socket, keeps what it takes, and refuses as often as it is asked to."""

from __future__ import annotations

import email
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message


class MailServer(socketserver.ThreadingTCPServer):
    """Mails as (recipients, message). ``refuse``: so many more are not taken, for now. ``answers``: to recipients."""

    allow_reuse_address, daemon_threads = True, True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.mails: list[tuple[list[str], Message]] = []
        self.refuse = 0
        self.answers: dict[str, str] = {}

    @property
    def place(self) -> str:
        """``host:port``."""
        return f"127.0.0.1:{self.server_address[1]}"


class _Conversation(socketserver.StreamRequestHandler):
    server: MailServer

    def handle(self) -> None:
        """RFC 5321 as far as a client needs it."""
        self._say("220 mail.test ESMTP")
        to: list[str] = []
        while line := self.rfile.readline():
            word = line.split(b" ")[0].strip().upper()
            if word in (b"EHLO", b"HELO"):
                self._say("250 mail.test")
            elif word == b"MAIL":
                to = []
                self._say("250 ok")
            elif word == b"RCPT":
                address = line.decode().partition("<")[2].partition(">")[0]
                said = self.server.answers.get(address, "250 ok")
                to += [address] if said.startswith("250") else []
                self._say(said)
            elif word == b"DATA" and self.server.refuse > 0:
                self.server.refuse -= 1
                self._say("451 try again later")
            elif word == b"DATA":
                self._say("354 go on")
                self.server.mails.append((to, email.message_from_bytes(self._body())))
                self._say("250 taken")
            elif word == b"QUIT":
                self._say("221 bye")
                return
            else:
                self._say("250 ok" if word in (b"RSET", b"NOOP") else "502 not here")

    def _body(self) -> bytes:
        lines = []
        while (line := self.rfile.readline()) not in (b".\r\n", b""):
            lines.append(line[1:] if line.startswith(b"..") else line)
        return b"".join(lines)

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


@contextmanager
def mail_server() -> Iterator[MailServer]:
    """One that listens."""
    with MailServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
