"""The page of ``vaswani attention`` in a real Chromium: what a user sees, points at and presses.

One window for all; a page is opened in each test.
"""

import re

import pytest

from tests.attentions import ARABIC, HEBREW, ODD, long_sentence, made
from tests.browser import Browser, needs_browser
from vaswani.attention_page.maps import between
from vaswani.attention_page.page import page

pytestmark = needs_browser

SOURCE = ["The", "ho@@", "use", "is", "big", "."]
TARGET = ["Das", "H@@", "au@@", "s", "ist", "gr@@", "oß", "."]
SHORT = made(SOURCE, TARGET)
PAGES = {
    "short": (SHORT, "words"),
    "long": (made(long_sentence(150), long_sentence(120), layers=6, heads=8), "subwords"),
    "arabic": (made(SOURCE, ARABIC, langs=("en", "ar")), "words"),
    "hebrew": (made(HEBREW, TARGET, langs=("he", "de")), "words"),
    "odd": (made(ODD, ODD, unknown=["$x$"]), "words"),
}
PICTURE = "return document.getElementById('grid').toDataURL()"


def element(script):
    return f"return document.querySelector({script})"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for name, (attention, by) in PAGES.items():
        (folder / f"{name}.html").write_text(page(attention, by), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.quit()


@pytest.fixture
def show(window, pages):
    """Opens a page at the size and in the colours of an ordinary screen."""

    def open_page(name, hash="", width=1000, height=900, scheme="light", mobile=False):
        window.screen(width, height, mobile)
        window.media("", scheme)
        window.open(pages / f"{name}.html", hash)
        return window

    yield open_page
    assert window.console() == []  # no error, no warning: of any test


def text(window, selector):
    return window.run("return document.querySelector(arguments[0]).textContent", selector)


def settle(window):
    """Until the page has heard of what changed, and has drawn."""
    script = "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))"
    window.ask("POST", "/execute/async", {"script": script, "args": []})


def choose(window, name, value):
    """Click one of the choices."""
    window.run(f"document.querySelector('input[name={name}][value=\"{value}\"]').click()")


def looks(message):
    """The words and percentages of the sentence that says where a word looks."""
    return [(word, float(share)) for word, share in re.findall(r"“([^”]+)” ([\d.]+) %", message)]


# ---- what it shows --------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAGES)
def test_it_opens_without_an_error_or_a_request(show, name):
    window = show(name)
    assert text(window, "#caption").startswith("Cross-attention, layer ")
    requests = window.run("return performance.getEntriesByType('resource').map(r => r.name)")
    assert [name for name in requests if not name.startswith("data:")] == []
    assert window.run("return typeof hacked") == "undefined"


def test_every_head_of_every_layer_has_its_own_picture(show):
    window = show("short")
    pictures = set()
    for kind in ("encoder", "decoder", "cross"):
        choose(window, "kind", kind)
        for layer in (1, 2):
            choose(window, "layer", layer)
            for head in range(5):
                choose(window, "head", head)
                pictures.add(window.run(PICTURE))
    assert len(pictures) == 3 * 2 * 5
    assert text(window, "#caption") == "Cross-attention, layer 2, head 4"


@pytest.mark.parametrize("by", ["words", "subwords"])
@pytest.mark.parametrize("head", [0, 3])
def test_a_word_that_is_pointed_at_shows_where_it_looks(show, by, head):
    """As the formula has it: rows averaged, columns summed, heads averaged for the mean."""
    window = show("short", f"#cross.1.{head}.{by}")
    rows, columns = (getattr(SHORT.sides[name], by) for name in ("target", "source"))
    maps = between(SHORT.weights["cross"][0], rows, columns)
    expected = (maps[head - 1] if head else maps.mean(0))[1]
    window.point("#from button:nth-child(2)")
    best = sorted(range(len(columns)), key=lambda n: -expected[n])[:5]
    found = looks(text(window, "#said"))
    assert [word for word, _ in found] == [columns[n].text for n in best]
    assert [share for _, share in found] == pytest.approx(
        [100 * expected[n] for n in best], abs=0.6
    )
    shades = window.run(
        "return [...document.querySelectorAll('#to button')].map("
        "b => Number(b.style.getPropertyValue('--shade')))"
    )
    assert [shade**2 for shade in shades] == pytest.approx(list(expected), abs=0.006)


def test_a_word_that_is_looked_at_shows_by_which(show):
    window = show("short", "#encoder.2.1.words")
    rows = SHORT.sides["source"].words
    expected = between(SHORT.weights["encoder"][1, 0], rows, rows)[:, 3]
    window.point("#to button:nth-child(4)")
    message = text(window, "#said")
    best = int(expected.argmax())
    assert message.startswith("“big” is looked at by ")
    assert looks(message)[0] == (rows[best].text, pytest.approx(100 * expected[best], abs=0.6))


def test_a_cell_and_a_tap_choose_a_word(show):
    window = show("short", "#cross.1.1.words")
    window.point("#grid", y=30)
    pointed = text(window, "#from [aria-pressed=true]")
    assert pointed != "Das" and text(window, "#said").startswith(f"“{pointed}” looks at ")
    assert "%" in window.run("return document.getElementById('grid').title")
    window.point("#from button:nth-child(3)", "touch")
    assert text(window, "#from [aria-pressed=true]") == "ist"


def test_unknown_words_are_marked(show):
    window = show("odd", "#encoder.1.1.words")
    assert text(window, "#from .unknown") == "$x$"
    assert window.run("return document.querySelector('#from .unknown').title").endswith(
        "the model)"
    )


# ---- by keyboard ----------------------------------------------------------------------------


def test_all_of_it_works_by_keyboard(show):
    window = show("short", "#cross.1.1.words")
    before = window.run(PICTURE)
    window.run("document.querySelector('input[name=head]:checked').focus()")
    window.press("Right")
    assert text(window, "#caption") == "Cross-attention, layer 1, head 2"
    assert window.run(PICTURE) != before
    window.press("Tab")  # to the words, of which Tab reaches one
    assert window.run("return document.activeElement.textContent") == "Das"
    window.press("Right", "Right")
    assert text(window, "#said").startswith("“ist” looks at ")
    window.press("End")
    assert text(window, "#said").startswith("“(end)” looks at ")
    window.press("Tab", "Home", "Right")
    assert text(window, "#said").startswith("“house” is looked at by ")
    outline = "return getComputedStyle(document.activeElement).outlineStyle"
    assert window.run(outline) != "none"  # where the focus is can be seen
    window.press("Tab")
    assert window.run("return document.activeElement.id") == "map"


def test_arrows_go_the_way_of_the_script(show):
    window = show("arabic", "#cross.1.1.words")
    assert window.run("return document.getElementById('from').dir") == "rtl"
    window.run("document.querySelector('#from button').focus()")
    window.press("Left")
    assert text(window, "#from [aria-pressed=true]") == "الولد"
    lefts = window.run(
        "return [...document.querySelectorAll('#from button')].map("
        "b => b.getBoundingClientRect().left)"
    )
    assert lefts == sorted(lefts, reverse=True)  # the first word is on the right


def test_everything_has_a_name_for_screen_readers(show):
    window = show("short")
    nodes = window.devtools("Accessibility.getFullAXTree")["nodes"]
    roles = ("button", "radio", "group", "radiogroup", "region", "img", "image", "canvas")
    unnamed = [
        node["role"]["value"]
        for node in nodes
        if not node["ignored"]
        and node["role"]["value"] in roles
        and not (node.get("name") or {}).get("value")
    ]
    assert unnamed == []
    assert any(node["role"]["value"] == "status" for node in nodes)


# ---- on screens of all kinds, and on paper -----------------------------------------------------


OVERLAPS = """
    const boxes = [...document.querySelectorAll(arguments[0])].map(e => e.getBoundingClientRect());
    let found = 0;
    for (let i = 0; i < boxes.length; i++) for (let j = 0; j < i; j++) {
        const [a, b] = [boxes[i], boxes[j]];
        const inside = 0.5;  // of a pixel
        if (a.left + inside < b.right && b.left + inside < a.right
            && a.top + inside < b.bottom && b.top + inside < a.bottom) found++;
    }
    return [boxes.length, found];
"""


@pytest.mark.parametrize(
    ("name", "labels"), [("long", 151), ("arabic", 6), ("hebrew", 6)], ids=["long", "ar", "he"]
)
def test_no_label_hides_another(show, name, labels):
    window = show(name)
    assert window.run(OVERLAPS, "#tops span") == [labels, 0]
    for selector in ("#sides span", "#from button", "#to button"):
        assert window.run(OVERLAPS, selector)[1] == 0


@pytest.mark.parametrize("name", ["short", "long", "hebrew", "odd"])
def test_a_phone_scrolls_the_map_and_not_the_page(show, name):
    window = show(name, width=360, height=740, mobile=True)
    wide = "return [document.scrollingElement.scrollWidth, innerWidth]"
    assert window.run(wide) == [360, 360]
    if name == "long":
        inside = "const m = document.getElementById('map'); return m.scrollWidth > m.clientWidth"
        assert window.run(inside)
        sticky = """
            const map = document.getElementById('map');
            map.scrollTo(500, 0);
            return document.getElementById('sides').getBoundingClientRect().left >= 0;
        """
        assert window.run(sticky)  # the words of the rows stay


def contrast(window, selector):
    """Between an element's text and what is behind it, by WCAG's formula."""
    script = """
        const element = document.querySelector(arguments[0]);
        const canvas = document.createElement('canvas')
            .getContext('2d', {willReadFrequently: true});
        const behind = [];
        for (let e = element; e; e = e.parentElement) {
            behind.unshift(getComputedStyle(e).backgroundColor);
        }
        for (const colour of behind) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
        const paper = [...canvas.getImageData(0, 0, 1, 1).data];
        canvas.fillStyle = getComputedStyle(element).color;
        canvas.fillRect(0, 0, 1, 1);
        return [paper, [...canvas.getImageData(0, 0, 1, 1).data]];
    """
    lights = []
    for pixel in window.run(script, selector):
        parts = [value / 255 for value in pixel[:3]]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        lights.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(lights) + 0.05) / (min(lights) + 0.05), lights[0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_light_and_dark(show, scheme):
    window = show("short", "#cross.1.1.words", scheme=scheme)
    paper = contrast(window, "h1")[1]
    assert paper > 0.9 if scheme == "light" else paper < 0.05
    for selector in ("h1", "dt", "dd", "h3", "#said", ".help", "input:checked + span"):
        assert contrast(window, selector)[0] >= 4.5, selector
    shaded = """
        const button = document.querySelector('#to button');
        button.style.setProperty('--shade', arguments[0]);
        button.classList.toggle('deep', arguments[1]);
    """
    limit = 0.755 if scheme == "light" else 0.605  # as the page has it
    for step in range(21):
        window.run(shaded, step / 20, step / 20 > limit)
        assert contrast(window, "#to button")[0] >= 4.5, step


def test_the_picture_follows_the_colours(show):
    window = show("short")
    light = window.run(PICTURE)
    window.media("", "dark")
    settle(window)
    dark = window.run(PICTURE)
    assert dark != light
    window.media("print", "dark")
    settle(window)
    assert window.run(PICTURE) == light
    assert contrast(window, "h1")[1] > 0.9


def test_it_prints_the_chosen_head_whole(show):
    window = show("long", "#cross.2.3.subwords", width=794, height=1123)
    window.media("print")
    hidden = "return getComputedStyle(document.querySelector('form')).display"
    assert window.run(hidden) == "none"
    right = "return document.getElementById('grid').getBoundingClientRect().right"
    assert window.run(right) <= 794
    for name in ("from", "to", "map"):
        whole = (
            f"const e = document.getElementById('{name}'); return e.scrollHeight - e.clientHeight"
        )
        assert window.run(whole) <= 8
    window.media()
    assert window.pdf().startswith(b"%PDF-")


def test_an_address_leads_to_a_head(show):
    window = show("short", "#decoder.1.2.subwords")
    assert text(window, "#caption") == "Decoder self-attention, layer 1, head 2"
    choose(window, "view", "words")
    assert window.run("return location.hash") == "#decoder.1.2.words"
    for odd in ("#nothing", "#cross.99.-1.lines", "#..."):
        show("short", odd)
        assert text(window, "#caption") == "Cross-attention, layer 2, mean of the heads"
