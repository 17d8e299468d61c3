"""The page of a run that goes on, over a small read-only server of this machine."""

from __future__ import annotations

from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from agnosticfair.errors import AgnosticFairError, SettingsError
from agnosticfair.report.page import as_text, data, html
from agnosticfair.report.runs import read_run

LOCAL = ("127.0.0.1", "localhost")


def serve(run: Path, host: str, port: int) -> ThreadingHTTPServer:
    """A server, not started yet, of the page and of its data; anything else is not found."""
    own = host in LOCAL
    now(run)  # what is no run is refused before a browser asks

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                if own and self.headers.get("Host", "").rpartition(":")[0] not in LOCAL:
                    self.send_error(
                        HTTPStatus.FORBIDDEN
                    )  # another site's page, by a name of its own
                elif self.path == "/":
                    self.reply(html(now(run)), "text/html")
                elif self.path == "/data.json":
                    self.reply(as_text(now(run)), "application/json")
                else:
                    self.send_error(HTTPStatus.NOT_FOUND)
            except AgnosticFairError as error:  # between two files of a run that just ends
                why = " ".join(str(error).split())  # in the body: a status line takes Latin-1 only
                self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, explain=why)

        def reply(self, text: str, kind: str) -> None:
            content = text.encode()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    try:
        return ThreadingHTTPServer((host, port), Answer)
    except (OSError, OverflowError) as error:
        raise SettingsError(
            f"cannot answer at {host}:{port} ({error}): name another --port, 0 for a free one"
        ) from None


def now(run: Path) -> dict[str, Any]:
    """The page's data as the run is now."""
    return data([read_run(run, live=True)]) | {"live": True}
