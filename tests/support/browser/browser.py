# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven over its own pipe (--remote-debugging-pipe): no package, no port, no driver program.

with Browser() as browser:
    page = browser.open(Path("x.html"), 1200, 700)
    page.run("1 + 1")
    page.click(100, 200)
    Path("x.png").write_bytes(page.screenshot())
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
TIMEOUT = 120.0  # seconds of one call: machines are slow, and busy


def find() -> str | None:
    """The browser that is here, or None."""
    return os.environ.get("MEMOIR_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class BrowserError(Exception):
    """The browser refused, or the page's script threw."""


class Browser:
    """One process; pages in it share nothing. Not thread-safe."""

    def __init__(self, *options: str):
        program = find()
        if program is None:
            raise BrowserError("no Chromium here (apt-get install chromium)")
        self._folder = tempfile.TemporaryDirectory(prefix="memoir-browser-", ignore_cleanup_errors=True)
        command = [
            program,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--mute-audio",
        ]
        command += [
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-extensions",
            "--force-color-profile=srgb",
        ]
        command += [
            "--disable-background-networking",
            "--disable-component-update",
            "--font-render-hinting=none",
        ]
        command += ["--enable-precise-memory-info", f"--user-data-dir={self._folder.name}", *options]
        command += ["--remote-debugging-pipe", "about:blank"]
        read_there, self._write = os.pipe()
        self._read, write_there = os.pipe()

        def connect() -> None:  # the browser reads what it is told from 3 and answers on 4
            ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (read_there, write_there)]
            for number, end in enumerate(ends, 3):
                os.dup2(end, number)

        self._process = subprocess.Popen(
            command,
            close_fds=False,  # what Python opens is closed on exec
            preexec_fn=connect,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(read_there)
        os.close(write_there)
        self._number, self._rest = 0, b""
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._write)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._read)
        self._folder.cleanup()

    @property
    def pid(self) -> int:
        return self._process.pid

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """One command of the DevTools protocol; what it gives."""
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        end = time.monotonic() + TIMEOUT
        while True:
            answer = self._next(end, method)
            if answer.get("id") == number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error'].get('message')}")
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)

    def _next(self, end: float, what: str) -> dict[str, Any]:
        while b"\0" not in self._rest:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._read], [], [], left)[0]:
                raise BrowserError(f"{what}: no answer in {TIMEOUT:.0f} s")
            part = os.read(self._read, 1 << 20)
            if not part:
                raise BrowserError(f"{what}: the browser ended")
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def listen(self, seconds: float) -> None:
        """Takes in what happens meanwhile."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if b"\0" in self._rest or select.select([self._read], [], [], left)[0]:
                self.events.append(self._next(end + 1, "listening"))

    def open(
        self,
        address: Path | str,
        width: int = 1200,
        height: int = 700,
        *,
        ratio: float = 1,
        dark: bool = False,
        mobile: bool = False,
        offline: bool = True,
        ready: bool = True,
    ) -> BrowserPage:
        """A new page, with the network cut unless asked otherwise. `ready`: waits until memoir's script is done."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = BrowserPage(self, session, target)
        for domain in ("Page", "Runtime", "Network", "Log", "Performance"):
            page.call(f"{domain}.enable")
        if offline:
            page.call(
                "Network.emulateNetworkConditions",
                offline=True,
                latency=0,
                downloadThroughput=0,
                uploadThroughput=0,
            )
        page.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=ratio,
            mobile=mobile,
        )
        if mobile:
            page.call("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=5)
        page.media(dark=dark)
        page.go(address.absolute().as_uri() if isinstance(address, Path) else address)
        if ready:
            page.wait_for("document.documentElement.dataset.ready")
        return page


class BrowserPage:
    """One tab."""

    def __init__(self, browser: Browser, session: str, target: str):
        self.browser, self._session, self._target = browser, session, target

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.call(method, self._session, **parameters)

    def go(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def close(self) -> None:
        self.browser.call("Target.closeTarget", targetId=self._target)

    def run(self, script: str) -> Any:
        """The value of an expression; promises are waited for."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise BrowserError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def wait_for(self, script: str, seconds: float = TIMEOUT) -> Any:
        """Until the expression is true; its value."""
        end = time.monotonic() + seconds
        while True:
            try:
                if value := self.run(script):
                    return value
            except BrowserError:
                if time.monotonic() > end:
                    raise
            if time.monotonic() > end:
                raise BrowserError(f"not true in {seconds:.0f} s: {script}")
            time.sleep(0.02)

    def media(self, *, dark: bool = False, kind: str = "") -> None:
        """Light or dark; "print" or the screen."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", media=kind, features=features)

    def mouse(self, what: str, x: float, y: float, **more: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=what, x=x, y=y, **more)

    def move(self, x: float, y: float) -> None:
        self.mouse("mouseMoved", x, y)

    def click(self, x: float, y: float) -> None:
        self.move(x, y)
        self.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)

    def wheel(self, x: float, y: float, by: float) -> None:
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=by)

    def touch(self, what: str, *points: tuple[float, float]) -> None:
        """touchStart, touchMove, touchEnd."""
        listed = [{"x": x, "y": y, "id": index} for index, (x, y) in enumerate(points)]
        self.call("Input.dispatchTouchEvent", type=what, touchPoints=listed)

    def key(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def screenshot(self, whole: bool = False) -> bytes:
        """PNG of what is seen, or of the whole page."""
        return base64.b64decode(
            self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        )

    def printed(self) -> bytes:
        """PDF."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def metrics(self) -> dict[str, float]:
        return {one["name"]: one["value"] for one in self.call("Performance.getMetrics")["metrics"]}

    def _events(
        self, method: str, keep: Callable[[dict[str, Any]], bool] = lambda _: True
    ) -> list[dict[str, Any]]:
        mine = [one for one in self.browser.events if one.get("sessionId") == self._session]
        return [one["params"] for one in mine if one["method"] == method and keep(one["params"])]

    def requests(self) -> list[str]:
        """The addresses that the page asked for."""
        return [one["request"]["url"] for one in self._events("Network.requestWillBeSent")]

    def complaints(self) -> list[str]:
        """Errors, what was thrown, and what the page's policy refused."""
        thrown = [one["exceptionDetails"] for one in self._events("Runtime.exceptionThrown")]
        texts = [one.get("exception", {}).get("description") or one["text"] for one in thrown]
        logged = self._events("Log.entryAdded", lambda one: one["entry"]["level"] in ("error", "warning"))
        texts += [one["entry"]["text"] for one in logged]
        called = self._events("Runtime.consoleAPICalled", lambda one: one["type"] in ("error", "assert"))
        return texts + [" ".join(str(a.get("value")) for a in one["args"]) for one in called]
