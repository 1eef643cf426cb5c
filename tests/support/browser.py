"""A real Chromium without a window, for pages that people read: what it shows, measures and complains about."""

from __future__ import annotations

import functools
import html
import json
import re
import shutil
import subprocess
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

#: Frames have the width of a phone or of a screen whatever the least width of a window is.
_MEASURE = """
const frames = [...document.querySelectorAll('iframe')];
Promise.all(frames.map(f => new Promise(done => f.addEventListener('load', done)))).then(() => {
  const found = frames.map(f => {
    const d = f.contentDocument, root = d.documentElement;
    return {page: f.dataset.page, width: root.clientWidth, needed: root.scrollWidth, title: d.title, text: d.body.innerText,
      drawn: [...d.querySelectorAll('svg')].filter(s => s.getBoundingClientRect().height > 20).length,
      active: d.querySelectorAll('script, main img, iframe, object, [onerror], [onload], [onclick]').length,
      outside: [...d.querySelectorAll('[src], [href]')].map(e => e.getAttribute('src') || e.getAttribute('href'))
        .filter(a => !a.startsWith('#') && !a.startsWith('data:'))};
  });
  const out = document.createElement('pre');
  out.id = 'found';
  out.textContent = JSON.stringify(found);
  document.body.append(out);
});
"""


def missing_browser() -> list[str]:
    """What keeps a page from being looked at; empty when it can be."""
    return [] if shutil.which("chromium") else ["chromium"]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


def look_at(directory: Path, pages: list[tuple[str, int]]) -> tuple[list[dict[str, Any]], list[str]]:
    """Show each (file name in ``directory``, width in pixels); what each looks like, and every line of the console."""
    frames = "".join(f'<iframe data-page="{name}" src="{name}" width="{width}" height="900"></iframe>' for name, width in pages)
    (directory / "frames.html").write_text(f"<!doctype html><link rel=icon href='data:,'>{frames}<script>{_MEASURE}</script>")
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(directory)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        options += [f"--user-data-dir={directory / 'profile'}", "--enable-logging=stderr", "--virtual-time-budget=20000"]
        command = ["chromium", *options, "--dump-dom", f"http://127.0.0.1:{server.server_port}/frames.html"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=True)
    finally:
        server.shutdown()
        server.server_close()
    found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, flags=re.DOTALL)
    assert found, done.stderr
    return json.loads(html.unescape(found[1])), [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
