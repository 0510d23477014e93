"""The page of ``vaswani attention`` in a real Chromium, which writes out what its script has made.

It comes with the operating system (Debian: ``chromium``). The page's numbers are checked without a
browser in unit/test_attention_page.py.
"""

import re
import shutil
import subprocess

import pytest

from tests.attentions import ODD, made
from vaswani.attention_page.maps import word_weights
from vaswani.attention_page.page import page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    not CHROMIUM, reason="NOT TESTED: no browser here (Debian: apt install chromium)"
)
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
FLAGS += ["--enable-logging=stderr", "--dump-dom"]
SOURCE = ["The", "ho@@", "use", "is", "big", "."]
TARGET = ["Das", "H@@", "au@@", "s", "ist", "gr@@", "oß", "."]
CLICK = "<script>document.querySelector('#from button:nth-child(2)').click()</script>"

#: writes how wide the page is, and how much of that is visible
SIZES = """<script>
const root = document.documentElement;
document.getElementById("said").textContent = `${root.scrollWidth} ${root.clientWidth}`;
</script>"""


def elements(folder, text: str, hash: str = "", *flags: str) -> str:
    """Return the page's elements after its script has run without a message to the console."""
    path = folder / "page.html"
    path.write_text(text, encoding="utf-8")
    command = [
        CHROMIUM,
        *FLAGS,
        *flags,
        f"--user-data-dir={folder / 'profile'}",
        path.as_uri() + hash,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "CONSOLE" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.parametrize("hash", ["", "#cross.99.-1.lines"])
def test_words_that_look_like_html_are_shown_and_not_run(hash, tmp_path):
    """The last layer first, as for an address that leads nowhere."""
    found = elements(tmp_path, page(made(ODD, ODD, unknown=["$x$"]), "words"), hash)
    assert ">Cross-attention, layer 2, mean of the heads<" in found
    assert "&lt;script&gt;hacked=1&lt;/script&gt;</span></button>" in found
    assert "<script>hacked=1" not in found


@pytest.mark.parametrize(("by", "head"), [("words", 3), ("subwords", 0)])
def test_a_chosen_word_shows_where_it_looks(by, head, tmp_path):
    attention = made(SOURCE, TARGET)
    rows, columns = (getattr(attention.sides[name], by) for name in ("target", "source"))
    maps = word_weights(attention.weights["cross"][0], rows, columns)
    expected = 100 * (maps[head - 1] if head else maps.mean(0))[1]
    found = elements(tmp_path, page(attention, by) + CLICK, f"#cross.1.{head}.{by}")
    said = re.sub("<[^>]*>", "", found.partition('id="said"')[2].partition("</p>")[0])
    shown = re.findall(r"“([^”]+)” ([\d.]+) %", said)
    best = sorted(range(len(columns)), key=lambda n: -expected[n])[:5]
    assert [word for word, _ in shown] == [columns[n].text for n in best]
    shares = [float(share) for _, share in shown]
    assert shares == pytest.approx([expected[n] for n in best], abs=0.6)


@pytest.mark.parametrize("by", ["words", "subwords"])
def test_a_long_word_does_not_make_a_phone_scroll_sideways(by, tmp_path):
    """Of 68 letters, as German has them; Chromium makes a window at least 500 pixels wide."""
    word = "Donaudampfschifffahrtselektrizitatenhauptbetriebswerkbauunterbeamter"
    attention = made([word, *SOURCE], [*TARGET, word])
    text = page(attention, by).replace("</body>", CLICK + SIZES + "</body>")
    found = elements(tmp_path, text, "", "--window-size=360,640")
    content, visible = re.findall(r'id="said"[^>]*>(\d+) (\d+)<', found)[0]
    assert int(content) <= int(visible) < 600
