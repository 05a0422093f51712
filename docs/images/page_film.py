# SPDX-License-Identifier: Apache-2.0
"""Makes page.webp, the README's first picture: a page in use, filmed in a headless Chromium.

    .venv/bin/python docs/images/page_film.py magma27_cs336.pickle     a memory snapshot of PyTorch with Python frames

The pointer is drawn into the page; all else is what a person sees.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from memoir.traces.files import open_trace
from memoir.views.page.of_trace import trace_page
from memoir.views.trace_summary import summarize
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support" / "browser"))
from browser import Browser, BrowserPage  # noqa: E402

WIDTH, HEIGHT = 1040, 700
LIMIT = 700 << 10  # bytes: it is the first thing that a reader of the README waits for
MAP = "memoirPage.panels[0].maps[0]"
POINTER = """(() => { const p = document.createElement('div'); p.id = 'pointer';
Object.assign(p.style, { position: 'fixed', width: '16px', height: '16px', borderRadius: '8px', zIndex: 9,
background: 'rgba(20,24,31,.55)', border: '2px solid white', pointerEvents: 'none', left: '-40px' });
document.body.append(p); })()"""


class Film:
    def __init__(self, page: BrowserPage):
        self.page, self.frames, self.durations = page, [], []
        self.at = (WIDTH * 0.7, HEIGHT * 0.3)
        page.run(POINTER)

    def shoot(self, milliseconds: int) -> None:
        self.page.browser.listen(0.12)
        self.frames.append(Image.open(io.BytesIO(self.page.screenshot())).convert("RGB"))
        self.durations.append(milliseconds)

    def go(self, x: float, y: float, steps: int = 3) -> None:
        x0, y0 = self.at
        for step in range(1, steps + 1):
            part = step / steps
            part = part * part * (3 - 2 * part)
            self.point(x0 + (x - x0) * part, y0 + (y - y0) * part)
            self.shoot(110)

    def point(self, x: float, y: float) -> None:
        self.at = (x, y)
        self.page.run(
            f"Object.assign(document.getElementById('pointer').style, {{left: '{x - 8}px', top: '{y - 8}px'}})"
        )
        self.page.move(x, y)

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Of the map, by shares from its lower left corner."""
        left, bottom, width, height = self.page.run(
            f"(() => {{ const b = {MAP}.canvas.getBoundingClientRect(); return [b.left, b.bottom, b.width, b.height]; }})()"
        )
        return left + x * width, bottom - y * height

    def scroll(self, to: str, steps: int = 2) -> None:
        begin = self.page.run("scrollY")
        end = self.page.run(f"scrollY + document.querySelector('{to}').getBoundingClientRect().top - 12")
        for step in range(1, steps + 1):
            self.page.run(f"window.scrollTo(0, {begin + (end - begin) * step / steps})")
            self.shoot(120)

    def save(self, path: Path) -> None:
        for quality in (80, 72, 65, 58, 50):
            self.frames[0].save(
                path,
                save_all=True,
                append_images=self.frames[1:],
                duration=self.durations,
                loop=0,
                quality=quality,
                method=4,
            )
            if path.stat().st_size <= LIMIT:
                return
        raise SystemExit(f"{path} is larger than {LIMIT:,} bytes; film fewer steps")


def main() -> None:
    trace = open_trace(sys.argv[1])
    html = trace_page(Path(sys.argv[1]).name, trace, summarize(trace)).render()
    with tempfile.TemporaryDirectory() as folder, Browser() as browser:
        path = Path(folder) / "x.html"
        path.write_text(html)
        page = browser.open(path, WIDTH, HEIGHT)
        film = Film(page)
        film.shoot(1400)
        film.scroll("#panel-0")
        film.go(*film.place(0.50, 0.55))
        film.shoot(1300)
        film.go(*film.place(0.42, 0.80))
        film.shoot(900)
        x, y = film.at
        for _ in range(4):
            page.wheel(x, y, -280)
            film.shoot(140)
        film.shoot(1000)
        page.run(f"{MAP}.view.reset()")
        film.go(*film.place(0.5, 0.305))
        page.click(*film.at)
        film.shoot(1800)
        page.run("memoirPage.panels[0].pin(memoirPage.panels[0].maps[0], 0xffffffff)")
        page.run(
            "(() => { const s = document.querySelector('.controls select'); s.value = 'lifetime'; "
            "s.dispatchEvent(new Event('change')); })()"
        )
        film.shoot(1500)
        page.run("memoirPage.panels[0].setMode('site')")
        film.scroll("#panel-1")
        box = page.run(
            "(() => { const b = document.querySelector('.flame').getBoundingClientRect(); return [b.left, b.top]; })()"
        )
        film.go(box[0] + 300, box[1] + 130)
        film.shoot(700)
        page.click(*film.at)
        film.shoot(1400)
        page.run("memoirPage.panels[1].set_({ bottomUp: true })")
        film.shoot(1400)
        film.scroll("#panel-2")
        film.shoot(1600)
        film.save(Path(__file__).parent / "page.webp")
    print(f"{len(film.frames)} frames, {(Path(__file__).parent / 'page.webp').stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
