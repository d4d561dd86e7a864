"""The page, rendered here with Jinja2, and its few assets, served from memory.

The page is whole without its script: readings as of now, the journal, the topics. The script adds what moves. What
both need to know (the node, the knobs, the curl command) is put into the page once, as data attributes.
"""

from __future__ import annotations

import datetime
import hashlib
from pathlib import Path

import jinja2
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from broker_admin.encoding import mask_changes, sensitive_keys
from broker_admin.knobs import knob_states
from broker_admin.parts import parts_of
from broker_admin.view import BrokerView, ConfigChange, TopicInfo

UI_DIRECTORY = Path(__file__).parent.parent / "ui"

SHOWN_TOPICS = 200
"""Rows of the topic table. A page of ten thousand rows helps nobody; the API has them all."""

SHOWN_CHANGES = 12
"""Lines of the journal on the page; the API has the rest."""

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def bytes_text(count: float) -> str:
    """A size as people read it: ``1.4 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def number_text(number: int) -> str:
    """A count with thin spaces between the thousands."""
    return f"{number:,}".replace(",", "\u202f")


def duration_text(seconds: float) -> str:
    """An uptime by its two largest units: ``3 d 4 h``."""
    whole = int(seconds)
    parts = [(whole // 86400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "min"), (whole % 60, "s")]
    while len(parts) > 1 and parts[0][0] == 0:
        del parts[0]
    return " ".join(f"{amount} {unit}" for amount, unit in parts[:2])


def time_text(at_ms: int) -> str:
    """A moment in UTC, to the second; the script shows it in the reader's own zone."""
    return datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def partition_records(topic: TopicInfo) -> int:
    """Offsets between start and end, over all partitions; the records of a topic that is not compacted."""
    return sum(partition.log_end_offset - partition.log_start_offset for partition in topic.partitions)


def topic_bytes(topic: TopicInfo) -> int:
    return sum(partition.size_bytes for partition in topic.partitions)


def page_environment() -> jinja2.Environment:
    """Jinja2 with escaping on, no name left undefined, and the filters of the page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(UI_DIRECTORY / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        bytes_text=bytes_text,
        number_text=number_text,
        duration_text=duration_text,
        time_text=time_text,
        partition_records=partition_records,
        topic_bytes=topic_bytes,
    )
    return environment


TEMPLATES = page_environment()


def render_page(view: BrokerView, base_url: str) -> str:
    """The page as the broker stands now; ``base_url`` is how the caller reached us, for the commands shown."""
    topics = view.topics()
    return TEMPLATES.get_template("page.html").render(
        node=view.node(),
        readiness=view.readiness(),
        threads=view.threads(),
        knobs=knob_states(view.config_entries()),
        changes=shown_changes(view),
        topics=topics[:SHOWN_TOPICS],
        topic_count=len(topics),
        base_url=base_url,
        assets=ASSETS,
    )


def shown_changes(view: BrokerView) -> list[ConfigChange]:
    """The last changes, newest first, as the page's table has them."""
    masked = mask_changes(view.journal()[-SHOWN_CHANGES:], sensitive_keys(view.config_entries()))
    return masked[::-1]


class Asset:
    """One file of the page, read once; its tag changes with its content, so that browsers may keep it."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.content = path.read_bytes()
        self.tag = hashlib.sha256(self.content).hexdigest()[:16]
        self.media_type = MEDIA_TYPES[path.suffix]

    @property
    def url(self) -> str:
        return f"/static/{self.name}?{self.tag}"


ASSETS = {path.name: Asset(path) for path in sorted((UI_DIRECTORY / "static").iterdir()) if path.suffix in MEDIA_TYPES}


async def get_page(request: Request) -> Response:
    """The admin page."""
    return HTMLResponse(render_page(parts_of(request).view, str(request.base_url).rstrip("/")))


async def get_topic_rows(request: Request) -> Response:
    """The rows of the topic table, for the page to put in place."""
    topics = parts_of(request).view.topics()[:SHOWN_TOPICS]
    return HTMLResponse(TEMPLATES.get_template("topics.html").render(topics=topics))


async def get_journal_rows(request: Request) -> Response:
    """The rows of the table of changes, for the page to put in place."""
    changes = shown_changes(parts_of(request).view)
    return HTMLResponse(TEMPLATES.get_template("journal.html").render(changes=changes))


async def get_asset(request: Request) -> Response:
    """A file of the page, by its plain name."""
    asset = ASSETS.get(request.path_params["name"])
    if asset is None:
        raise HTTPException(404)
    etag = f'"{asset.tag}"'
    headers = {"etag": etag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(asset.content, media_type=asset.media_type, headers=headers)


ROUTES = [
    Route("/", get_page),
    Route("/rows/topics", get_topic_rows),
    Route("/rows/journal", get_journal_rows),
    Route("/static/{name}", get_asset),
]
