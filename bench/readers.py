"""Programs and a browser on the event stream beside the pages, and what web and stream hold after thousands of both.

Web and stream are real processes (``deploy/run/process``). 20 programs read the stream, a real browser has ten tabs over
HTTP/1.1; something happens, all hear of it, and an eleventh page opens. Then, with the programs still there, 5,000 page loads
over all pages but the admin's, and 2,000 reconnects: the memory (Pss of the process trees) may grow by less than 5 % after the
first 500 of each. ``BENCH_LOADS`` makes it shorter.
"""

from __future__ import annotations

import http.client
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import requests

from bench.api_load import _cookie, _get, _process, _wait_for
from deploy.stack.environment import UNLIMITED, with_limits
from tests.support.servers import free_ports

PROGRAMS, TABS, CLIENTS, REQUESTS = 20, 10, 2, 300
LOADS, RECONNECTS, WARM = 5000, 2000, 500
#: What may be added after the first ``WARM``.
GROWTH = 1.05
PATIENCE_SECONDS = 120.0
Heard = dict[int, int]


def main() -> bool:
    """Figures; whether they are good enough."""
    os.environ |= with_limits(os.environ, **UNLIMITED) | {"WMS2_DATABASE_URL": _own_database()}
    import django

    django.setup()
    from django.conf import settings

    loads = int(os.environ.get("BENCH_LOADS", LOADS))
    base = Path(os.environ["WMS2_STATE_DIR"]) / "readers"
    shutil.rmtree(base, ignore_errors=True)
    paths, token = _rows(base)
    port, stream_port = free_ports(2)
    own = {
        "PORT": str(port),
        "STREAM_PORT": str(stream_port),
        "WMS2_STREAM_URL": f"http://127.0.0.1:{stream_port}/stream",
        "WMS2_METRICS_ROOT": str(base / "metrics"),
        "WMS2_SECRET_KEY": settings.SECRET_KEY,
    }
    url = f"http://127.0.0.1:{port}"
    with ExitStack() as stack:
        processes = {"web": stack.enter_context(_process("web", own)), "stream": stack.enter_context(_process("stream", own))}
        _wait_for(port)
        _wait_for(stream_port)
        heard = stack.enter_context(_programs(f"{url}/api/v1/events/stream", token))
        _until(lambda: _readers(stream_port) == PROGRAMS, "the programs read")
        _browse(url, stream_port, heard)
        return _load(url, paths, token, loads, processes)


def _own_database() -> str:
    """An empty one beside the stack's, to which its processes write."""
    url = urlsplit(os.environ["WMS2_DATABASE_URL"])
    with psycopg.connect(url.geturl(), autocommit=True) as session:
        session.execute("DROP DATABASE IF EXISTS readers WITH (FORCE)")
        session.execute("CREATE DATABASE readers")
    return url._replace(path="/readers").geturl()


def _rows(base: Path) -> tuple[list[str], str]:
    """A row of every table and some hundred requests; the addresses of all pages, and a reader's token."""
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from rest_framework.authtoken.models import Token

    from requests_app.models import Installation
    from tests.support.many import build
    from wms2.conf import conf

    call_command("migrate", verbosity=0)
    reader = Token.objects.get_or_create(user=User.objects.get_or_create(username="bench")[0])[0]
    built = _of_tests("support.every_row").build(base / "submit")
    Installation.objects.update(instance=conf().instance, environment=conf().environment)
    known = _of_tests("browser.test_accessible").pages(built)
    build(REQUESTS)
    return [path for name, found in known.items() if not name.startswith("admin:") for path in found], reader.key


def _of_tests(name: str) -> Any:
    return import_module(f"tests.{name}")  # whose libraries have no types


@contextmanager
def _programs(address: str, token: str) -> Iterator[Heard]:
    """They read until the end, and begin again where a stream ended; how many events each has got."""
    heard: Heard = dict.fromkeys(range(PROGRAMS), 0)
    over = threading.Event()

    def read(number: int) -> None:
        last = ""
        while not over.is_set():
            headers = {"Authorization": f"Token {token}"} | ({"Last-Event-ID": last} if last else {})
            try:
                with requests.get(address, headers=headers, stream=True, timeout=PATIENCE_SECONDS) as answer:
                    answer.raise_for_status()
                    for line in answer.iter_lines(chunk_size=1, decode_unicode=True):
                        if over.is_set():
                            return
                        if line.startswith("id: "):
                            last = line.removeprefix("id: ")
                        heard[number] += line.startswith("data: ")
            except requests.RequestException:
                if not over.wait(1.0):
                    print(f"program {number} begins again", flush=True)

    threads = [threading.Thread(target=read, args=(number,), daemon=True) for number in heard]
    for thread in threads:
        thread.start()
    try:
        yield heard
    finally:
        over.set()


def _browse(url: str, stream_port: int, heard: Heard) -> None:
    from requests_app.feed import emit_event
    from tests.support.browser import browser, missing, window

    if why := missing():
        raise SystemExit(why)
    with browser() as running, window(running, url) as opened:
        name, _, value = _cookie().partition("=")
        opened.page.context.add_cookies([{"name": name, "value": value, "url": url}])
        tabs = [opened.page, *(opened.page.context.new_page() for _ in range(TABS - 1))]
        looks = dict.fromkeys(range(TABS), 0)
        for number, tab in enumerate(tabs):

            def count(answer: Any, number: int = number) -> None:
                looks[number] += answer.status == http.HTTPStatus.OK and "x-wms2-part" in answer.request.headers

            tab.on("response", count)
            tab.goto(f"{url}{('/', '/requests/')[number % 2]}", wait_until="load")
        _until(lambda: _readers(stream_port) == PROGRAMS + 1, "the browser reads", opened.page)
        before, news = dict(looks), dict(heard)
        begun = time.monotonic()
        emit_event("bench.happened")
        _until(lambda: all(heard[each] > news[each] for each in heard), "all programs hear", opened.page)
        print(f"{PROGRAMS} programs have heard of an event after {time.monotonic() - begun:.2f} s", flush=True)
        _until(lambda: all(looks[each] > before[each] for each in looks), "all tabs look", opened.page)
        print(f"{TABS} tabs show what is new after {time.monotonic() - begun:.1f} s", flush=True)
        begun, eleventh = time.monotonic(), opened.page.context.new_page()
        answer = eleventh.goto(f"{url}/requests/", wait_until="load")
        if answer is None or answer.status != http.HTTPStatus.OK:
            raise SystemExit("the eleventh page does not open")
        readers = _readers(stream_port) - PROGRAMS
        print(f"an eleventh page opens in {time.monotonic() - begun:.1f} s; the browser has {readers} stream", flush=True)


def _load(url: str, paths: Sequence[str], token: str, loads: int, processes: Mapping[str, int]) -> bool:
    login = {"Cookie": _cookie()}
    first = http.client.HTTPConnection(url.removeprefix("http://"), timeout=PATIENCE_SECONDS)
    paths = [path for path in paths if _get(first, path, login)[0] == http.HTTPStatus.OK]  # others lead on, or are files
    held, connected, step = [], 0, loads * WARM // LOADS
    for done in range(0, loads, step):
        begun = time.monotonic()
        further = min(step, loads * RECONNECTS // LOADS - connected)
        with ThreadPoolExecutor(CLIENTS + 1) as pool:
            turns = [range(done + each, done + step, CLIENTS) for each in range(CLIENTS)]
            parts = [pool.submit(_open_pages, url, paths, turn, login) for turn in turns]
            parts.append(pool.submit(_reconnect, url, token, further))
            for part in parts:
                part.result()
        connected += further
        held.append({name: pss_kb(pid) for name, pid in processes.items()})
        said = ", ".join(f"{name} {kb / 1024:.1f} MB" for name, kb in held[-1].items())
        took = time.monotonic() - begun
        print(f"{done + step:,} loads of {len(paths)} pages, {connected:,} reconnects ({took:.0f} s): {said}", flush=True)
    grown = {name: held[-1][name] / held[0][name] for name in processes}
    words = (f"{name} {100 * (ratio - 1):+.1f} %" for name, ratio in grown.items())
    print(f"grown since the first: {', '.join(words)}", flush=True)
    return all(ratio < GROWTH for ratio in grown.values())


def _open_pages(url: str, paths: Sequence[str], numbers: Sequence[int], login: Mapping[str, str]) -> None:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=PATIENCE_SECONDS)
    for number in numbers:
        path = paths[number % len(paths)]
        while (status := _get(connection, path, login)[0]) == http.HTTPStatus.SERVICE_UNAVAILABLE:
            print(f"{path} is put off", flush=True)  # as an overloaded process does
            time.sleep(1.0)
        if status != http.HTTPStatus.OK:
            raise SystemExit(f"{path} was answered {status}")


def _reconnect(url: str, token: str, times: int) -> None:
    with requests.Session() as session:
        session.headers["Authorization"] = f"Token {token}"
        while times:
            with session.get(f"{url}/api/v1/events/stream", stream=True, timeout=PATIENCE_SECONDS) as answer:
                if answer.status_code == http.HTTPStatus.SERVICE_UNAVAILABLE:
                    print(f"a reader is put off: {answer.text}", flush=True)
                    time.sleep(1.0)
                    continue
                answer.raise_for_status()
                next(islice(answer.iter_lines(chunk_size=1), 1))
                times -= 1


def pss_kb(pid: int) -> int:
    """What a process and all below it hold, with their share of what they share."""
    parents = {int(each.name): _parent(each) for each in Path("/proc").iterdir() if each.name.isdigit()}
    own = {pid}
    while more := {child for child, parent in parents.items() if parent in own} - own:
        own |= more
    lines = [line for each in own for line in Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _readers(port: int) -> int:
    return int(requests.get(f"http://127.0.0.1:{port}/livez", timeout=PATIENCE_SECONDS).json()["readers"])


def _until(true: Callable[[], bool], what: str, page: Any = None) -> None:
    limit = time.monotonic() + PATIENCE_SECONDS
    while not true():
        if time.monotonic() > limit:
            raise SystemExit(f"not within {PATIENCE_SECONDS:g} s: {what}")
        if page is None:
            time.sleep(0.1)
        else:
            page.wait_for_timeout(100)
