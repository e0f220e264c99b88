"""The report in a real browser, without network: what it shows, and what it asks for."""

import html
import json
import re
import shutil
import subprocess

import pytest
from support.made_up_studies import MEASURES, make, written

NAMES = (
    "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome",
    "chromium-headless-shell", "chrome-headless-shell",
)  # fmt: skip
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
PHONE, DESK = 390, 1200
# the page in frames of several widths, with everything open that a reader can open
FRAMES = """<!DOCTYPE html><meta charset="utf-8"><pre id="found"></pre>{frames}<script>
onload = () => {{
  const look = frame => {{
    const page = frame.contentDocument, root = page.documentElement;
    page.querySelectorAll("details").forEach(part => part.open = true);
    const seen = part => part.getBoundingClientRect().width > 0;
    return {{
      wide: root.scrollWidth - root.clientWidth,
      tables: [...page.querySelectorAll("table")].filter(seen).length,
      drawings: [...page.querySelectorAll("figure")].map(
        figure => [...figure.querySelectorAll("svg")].filter(seen).length),
      asked: frame.contentWindow.performance.getEntriesByType("resource").map(one => one.name),
    }};
  }};
  found.textContent = JSON.stringify([...document.querySelectorAll("iframe")].map(look));
  console.log("looked");
}};
</script>"""


@pytest.mark.skipif(BROWSER is None, reason=f"no browser; one of: {', '.join(NAMES)}")
def test_the_page_in_a_browser_without_network(tmp_path):
    page, _ = written(make(tmp_path / "study", measures={"perplexity": MEASURES["perplexity"]}))
    frames = "".join(
        f'<iframe width="{width}" height="800" srcdoc="{html.escape(page)}"></iframe>'
        for width in (PHONE, DESK)
    )
    (tmp_path / "frames.html").write_text(FRAMES.format(frames=frames), encoding="utf-8")
    done = subprocess.run(
        [
            *(BROWSER, "--headless", "--disable-gpu", "--no-sandbox", "--dump-dom"),
            *(f"--user-data-dir={tmp_path / 'profile'}", "--disable-dev-shm-usage"),
            *("--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--v=0"),
            (tmp_path / "frames.html").as_uri(),
        ],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = re.findall(r"CONSOLE.*", done.stderr)
    assert len(said) == 1 and '"looked"' in said[0]
    dumped = re.search('<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL).group(1)
    for found in json.loads(html.unescape(dumped)):
        assert found["wide"] == 0
        assert found["asked"] == []
        assert found["tables"] == page.count("<table>") > 3
        assert found["drawings"] == [1] * page.count("<figure>") and found["drawings"]
