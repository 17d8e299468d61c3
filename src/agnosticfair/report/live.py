"""Pages that go on, of a run or of a monitor, over a small read-only server of this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from agnosticfair.errors import AgnosticFairError, SettingsError
from agnosticfair.monitoring.monitor import Monitor
from agnosticfair.monitoring.prometheus import exposition
from agnosticfair.report import monitor as monitored
from agnosticfair.report.page import as_text, monitor_page, page_data, report_page
from agnosticfair.report.runs import read_run

LOCAL = ("127.0.0.1", "localhost")
HTML, JSON, METRICS = "text/html", "application/json", "text/plain; version=0.0.4"
Answers = Mapping[str, tuple[str, Callable[[], str]]]
"""By path: the kind of an answer, and what makes it."""


def serve(run: Path, host: str, port: int) -> ThreadingHTTPServer:
    """A server, not started yet, of a run's page and of its data; anything else is not found."""
    now(run)  # what is no run is refused before a browser asks
    page = {
        "/": (HTML, lambda: report_page(now(run))),
        "/data.json": (JSON, lambda: as_text(now(run))),
    }
    return answering(page, host, port)


def serve_monitor(look: Callable[[], Monitor], host: str, port: int) -> ThreadingHTTPServer:
    """The same of a monitor, and its metrics for Prometheus.  look: the monitor as its state file is now."""
    look()

    def content() -> dict[str, Any]:
        monitor = look()
        return monitored.page_data(monitor, monitor.verdict(), live=True)

    page = {
        "/": (HTML, lambda: monitor_page(content())),
        "/data.json": (JSON, lambda: as_text(content())),
        "/metrics": (METRICS, lambda: exposition(look().verdict()).decode()),
    }
    return answering(page, host, port)


def answering(answers: Answers, host: str, port: int) -> ThreadingHTTPServer:
    """A server, not started yet, that answers at these paths and reads nothing."""
    is_local = host in LOCAL

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                if is_local and self.headers.get("Host", "").rpartition(":")[0] not in LOCAL:
                    # another site's page, by a name of its own
                    self.send_error(HTTPStatus.FORBIDDEN)
                elif self.path in answers:
                    kind, make = answers[self.path]
                    self.reply(make(), kind)
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
    return page_data([read_run(run, live=True)]) | {"live": True}
