"""A web server that is killed in the middle of a request: ``hook_process.py PORT JOURNAL DIES_AT``.

It notes what it is sent, line by line: the name of the request and its body. Behind line DIES_AT, which is there then,
it kills itself before it answers; 0: it lives on.
"""

from __future__ import annotations

import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


def main(port: str, journal: str, dies_at: str) -> None:
    """Serve one request after another until the end."""
    file = Path(journal)
    count = len(file.read_bytes().splitlines()) if file.exists() else 0

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            nonlocal count
            body = self.rfile.read(int(self.headers["Content-Length"]))
            with file.open("ab") as opened:
                opened.write(self.headers["Idempotency-Key"].encode() + b" " + body + b"\n")
            count += 1
            if count == int(dies_at):
                os.kill(os.getpid(), signal.SIGKILL)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_parts: object) -> None:
            """Say nothing."""

    HTTPServer(("127.0.0.1", int(port)), Hook).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
