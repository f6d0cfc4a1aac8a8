"""The HTML page in headless Chromium: no error, no request, figures drawn, sorting, search and zoom work."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from benchmarks.simulated.counterfactual import Case

from boundby import api
from boundby.render import page as html_page
from boundby.simulate.instructions import MS, US, Alloc, Copy, Launch, Loop, Range, Sync, Work, item, program
from boundby.simulate.nsys_export import write_export

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
HOSTILE = "<img src=x onerror=document.title='owned'>"


def find_chromium() -> str:
    found = next((path for path in map(shutil.which, NAMES) if path), None)
    return found or pytest.skip("no Chromium here: the page is not looked at in a browser")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
    path = find_chromium()
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of a training loop with a slow start, waits, and a range named to run if it could."""
    forward = Range("forward", [Work(50 * US), *(Launch(f"gemm_{layer}", 150 * US) for layer in range(3))])
    loss = Range(HOSTILE, [Launch("</script><script>document.title='owned'</script>", 40 * US), *item(), *item()])
    slow = Range("step {i}", [Alloc(4 << 20), Work(20 * MS), forward, loss])
    step = Range("step {i}", [Copy(1 << 20, "HtoD", "pageable"), forward, loss, Range("optimizer", [Work(300 * US)])])
    made = program(Loop(1, [slow]), Loop(24, [step]), Sync(), name="page")
    folder = tmp_path_factory.mktemp("page")
    export = write_export(Case("page", made).run(), folder / "train.sqlite")
    found = api.examine(export)
    path = folder / "report.html"
    path.write_text(html_page.render(found.report, found.plot_data, next_bounds=found.next_bounds), encoding="utf-8")
    return path


@dataclass
class Opened:
    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        if "willReadFrequently" not in text:  # these tests look into the canvases, the page does not
            self.errors.append(text)

    def value(self, script: str) -> Any:
        return self.page.evaluate(script)


@contextmanager
def opened(browser: Browser, path: Path, **context: Any) -> Iterator[Opened]:
    made = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **context})
    found = Opened(made.new_page())
    found.page.on("console", lambda message: found.note(f"{message.type}: {message.text}"))
    found.page.on("pageerror", lambda error: found.errors.append(str(error)))
    found.page.on("request", lambda request: found.requests.append(request.url))
    found.page.goto(path.as_uri())
    found.page.wait_for_timeout(100)
    yield found
    made.close()


Open = Callable[..., Any]


@pytest.fixture
def shown(browser: Browser, written: Path) -> Iterator[Opened]:
    """The page, checked in the end for what no test may cause: an error, a request, a name that ran."""
    with opened(browser, written) as found:
        yield found
        assert found.errors == []
        assert found.requests == [written.as_uri()]
        assert "owned" not in found.page.title()


def shown_regions(found: Opened) -> list[str]:
    script = "page.all('tr.region').filter(row => !row.hidden).map(row => row.querySelector('.name').textContent)"
    return list(found.value(script))


def column(found: Opened, table: str, number: int) -> list[str]:
    return list(found.value(f"Array.from(page.byId('{table}').tBodies[0].rows, row => row.cells[{number}].dataset.v)"))


def colors_of(found: Opened, canvas: str) -> int:
    """How many different colours a canvas holds."""
    script = """selector => {
      const canvas = document.querySelector(selector);
      const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      const seen = new Set();
      for (let i = 0; i < data.length; i += 4) {
        if (data[i + 3]) seen.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
      }
      return seen.size;
    }"""
    return int(found.page.evaluate(script, canvas))


def test_it_opens_and_draws(shown: Opened) -> None:
    assert "GPU 0 is" in shown.page.locator("h1").inner_text()
    assert shown.page.locator("#plots canvas").count() == 2
    assert colors_of(shown, "#plots .uplot:nth-child(2) canvas") > 8
    assert colors_of(shown, "#plots .uplot:nth-child(1) canvas") > 3
    assert colors_of(shown, "#instance-series canvas") > 3
    assert colors_of(shown, "#instance-spread canvas") > 2
    # The lane holds the account's own colours.
    seen = shown.value("""() => {
      const chart = page.timeline.charts()[1], row = page.timeline.rows[0], ratio = devicePixelRatio;
      const { ctx, bbox } = chart;
      const { data } = ctx.getImageData(bbox.left, bbox.top + (row.y + 3) * ratio, bbox.width, 1);
      const found = new Set();
      for (let i = 0; i < data.length; i += 4) {
        const text = "#" + [0, 1, 2].map(k => data[i + k].toString(16).padStart(2, "0")).join("");
        const cause = page.causeColors().findIndex(color => color.fill === text);
        if (cause >= 0) found.add(page.data.causes[cause].key);
      }
      return Array.from(found);
    }""")
    assert {"gpu_compute", "sync"} <= set(seen) or {"gpu_compute", "cuda_api"} <= set(seen)


def test_regions_sort_among_siblings_and_as_a_list(shown: Opened) -> None:
    tree = shown_regions(shown)
    assert tree[0] == "step *"
    share = shown.page.locator("#region-table th:has-text('Share') button")
    share.click()
    assert shown.page.locator("#region-table th:has-text('Share')").get_attribute("aria-sort") == "descending"
    assert shown_regions(shown)[0] == "step *"
    share.click()
    assert shown_regions(shown)[0] == "step *"  # children stay below their parent
    assert set(shown_regions(shown)) == set(tree)
    shown.page.click("#region-flat")
    shown.page.locator("#region-table thead th:has-text('Own') button").click()
    own = [float(value) for value in column(shown, "region-table", 4)]
    assert own == sorted(own, reverse=True)
    assert "step */forward" in shown_regions(shown)


def test_regions_are_searched_and_unfold(shown: Opened) -> None:
    shown.page.fill("#region-search", "optimi")
    assert shown_regions(shown) == ["step *", "optimizer"]  # with what holds it
    assert "1 of" in shown.page.locator("#region-count").inner_text()
    shown.page.locator("tr.region:visible").last.click()
    text = shown.page.locator("tr.unfolded").inner_text()
    assert "GPU utilization" in text
    assert "not captured" in text or "CPU utilization" in text
    shown.page.fill("#region-search", "")
    assert len(shown_regions(shown)) > 2
    shown.page.locator("tr.region button.name").first.focus()
    shown.page.keyboard.press("ArrowLeft")
    assert shown_regions(shown) == ["step *"]


def test_tables_sort_and_search(shown: Opened) -> None:
    total = [float(value) for value in column(shown, "kernels", 2)]
    assert total == sorted(total, reverse=True)
    shown.page.locator("#kernels th:has-text('Median') button").click()
    median = [float(value) for value in column(shown, "kernels", 4)]
    assert median == sorted(median, reverse=True)
    shown.page.locator("#kernels th:has-text('Median') button").click()
    assert [float(value) for value in column(shown, "kernels", 4)] == sorted(median)
    shown.page.fill("input[data-table=kernels]", "gemm_2")
    assert shown.page.locator("#kernels tbody tr:visible").count() == 1


def test_the_timeline_zooms_by_mouse_by_key_and_by_button(shown: Opened) -> None:
    span = shown.value("page.data.plot_data.span")
    shown.page.locator("#plots").scroll_into_view_if_needed()
    box = shown.page.locator("#plots .u-over").nth(1).bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    shown.page.mouse.move(box["x"] + box["width"] * 0.25, middle)
    shown.page.mouse.down()
    shown.page.mouse.move(box["x"] + box["width"] * 0.5, middle, steps=5)
    shown.page.mouse.up()
    low, high = shown.value("page.timeline.range()")
    assert low == pytest.approx(span * 0.25, rel=0.03)
    assert high == pytest.approx(span * 0.5, rel=0.03)
    for chart in (0, 1):
        scale = shown.value(f"page.timeline.charts()[{chart}].scales.x")
        assert (scale["min"], scale["max"]) == (low, high)
    shown.page.mouse.dblclick(box["x"] + 60, middle)
    assert shown.value("page.timeline.range()") == [0, span]
    shown.page.locator("#plots").focus()
    shown.page.keyboard.press("+")
    low, high = shown.value("page.timeline.range()")
    assert high - low == pytest.approx(span / 2)
    shown.page.keyboard.press("ArrowRight")
    assert shown.value("page.timeline.range()")[0] > low
    shown.page.keyboard.press("0")
    shown.page.click("[data-do=in]")
    assert shown.value("page.timeline.range()[1]") < span
    shown.page.click("[data-do=reset]")
    assert shown.value("page.timeline.range()") == [0, span]


def test_gaps_tell_what_brought_them_about(shown: Opened) -> None:
    shown.page.click("[data-do=next]")
    told = shown.page.locator("#tip").inner_text()
    assert "gap of" in told
    assert "region: step *" in told
    assert "thread:" in told
    shown.page.locator("#gaps summary").click()
    row = shown.page.locator("#gaps tbody tr").nth(2)
    row.locator("button").click()
    low, high = shown.value("page.timeline.range()")
    length = float(row.locator("td").first.get_attribute("data-v") or 0)
    assert high - low == pytest.approx(4 * length, rel=0.01)


def test_hovering_names_the_range_as_text(shown: Opened) -> None:
    shown.page.locator("#plots").scroll_into_view_if_needed()
    place = shown.value("""() => {
      const chart = page.timeline.charts()[1];
      const name = page.data.plot_data.regions.findIndex(text => text.includes("<img"));
      const row = page.timeline.rows.find(row => row.lane.r && row.lane.r.includes(name));
      const i = row.lane.r.indexOf(name);
      page.timeline.setRange(row.lane.start[i] - 1000, row.lane.end[i] + 1000);
      const box = chart.over.getBoundingClientRect();
      return [box.left + box.width / 2, box.top + row.y + 5];
    }""")
    shown.page.mouse.move(*place)
    assert HOSTILE in shown.page.locator("#tip").inner_text()
    assert shown.page.locator("img").count() == 0


def test_kernels_and_calls_are_told_and_the_tip_follows_a_zoom(shown: Opened) -> None:
    shown.page.locator("#plots").scroll_into_view_if_needed()
    place = shown.value("""() => {
      const chart = page.timeline.charts()[1], names = page.data.plot_data.names;
      const row = page.timeline.rows.find(row => row.lane.k && row.lane.c);
      const i = row.lane.k.indexOf(names.indexOf("gemm_1"));
      page.timeline.setRange(row.lane.start[i] - 20000, row.lane.end[i] + 20000);
      const box = chart.over.getBoundingClientRect();
      return [box.left + box.width / 2, box.top + row.y + 5];
    }""")
    shown.page.mouse.move(*place)
    told = shown.page.locator("#tip").inner_text()
    assert "gemm_1" in told
    assert "GPU 0, stream" in told
    shown.value("page.timeline.setRange(page.timeline.range()[0] + 1e6, page.timeline.range()[1] + 1e6)")
    assert shown.page.locator("#tip").is_hidden() or shown.page.locator("#tip").inner_text() != told
    assert shown.value("page.timeline.rows.some(row => row.lane.k && !row.lane.c)")  # a thread's calls


def test_places_and_views_have_addresses(shown: Opened, browser: Browser, written: Path) -> None:
    origin = shown.value("page.data.plot_data.origin")
    shown.value("page.timeline.setRange(1e6, 3e6)")
    shown.page.wait_for_timeout(350)
    address = shown.value("location.hash")
    assert address == f"#timeline&t={origin + 1_000_000}-{origin + 3_000_000}"
    with opened(browser, written) as other:
        other.page.goto(f"{written.as_uri()}{address}")
        other.page.wait_for_function("page.timeline.range()[0] > 0")
        assert other.value("page.timeline.range()") == [1_000_000, 3_000_000]
        other.value("location.hash = '#finding-1'")
        other.page.wait_for_selector("#finding-1[open]")
        other.value("location.hash = '#region=' + encodeURIComponent('step */forward')")
        other.page.wait_for_selector("tr.unfolded")
        assert "step */forward" in other.page.locator("tr.unfolded").inner_text()
        assert other.errors == []


def test_the_icicle_zooms_into_a_region(shown: Opened) -> None:
    blocks = shown.page.locator("#icicle .block")
    assert blocks.first.inner_text() == "all 100 %"
    widths = shown.value("page.all('#icicle .block').map(block => [block.textContent, block.offsetWidth])")
    step = next(width for text, width in widths if text.startswith("step *"))
    assert 0.5 * widths[0][1] < step <= widths[0][1]
    shown.page.locator("#icicle .block", has_text="forward").click()
    assert shown.value("page.all('#icicle .block')[2].offsetWidth") >= widths[0][1] - 2
    assert "forward" in shown.page.locator("tr.chosen").inner_text()
    shown.page.wait_for_timeout(300)
    assert shown.value("location.hash").startswith("#region=step%20*%2Fforward")


def test_a_hostile_name_is_shown_as_text_everywhere(shown: Opened) -> None:
    assert HOSTILE in shown.page.locator("#region-table").inner_text()
    assert "</script>" in shown.page.locator("#kernels").inner_text()
    assert HOSTILE in shown.page.locator("#instance-region").inner_text()
    shown.page.locator("tr.region", has_text="<img").click()
    assert HOSTILE in shown.page.locator("tr.unfolded").inner_text()
    assert shown.page.locator("img").count() == 0


def test_warm_up_is_marked(shown: Opened) -> None:
    assert "The first one differs" in shown.page.locator("#instance-text").inner_text()
    shown.page.click("[data-which=p]")
    assert shown.page.locator("[data-which=p]").get_attribute("aria-pressed") == "true"
    options = shown.page.locator("#instance-region option").all_inner_texts()
    shown.page.select_option("#instance-region", label=next(text for text in options if "forward" in text))
    assert "25 instances" in shown.page.locator("#instance-text").inner_text()


def test_light_and_dark(shown: Opened, browser: Browser, written: Path) -> None:
    def paper(found: Opened) -> str:
        return str(found.value("getComputedStyle(document.body).backgroundColor"))

    assert paper(shown) == "rgb(255, 255, 255)"
    shown.page.click("#theme")
    dark = paper(shown)
    assert dark != "rgb(255, 255, 255)"
    with opened(browser, written, color_scheme="dark") as other:
        assert paper(other) == dark
        other.page.click("#theme")
        assert paper(other) == "rgb(255, 255, 255)"
        assert other.errors == []


@pytest.mark.parametrize("width", [360, 768])
def test_narrow_screens_do_not_scroll_sideways(browser: Browser, written: Path, width: int) -> None:
    with opened(browser, written, viewport={"width": width, "height": 800}) as found:
        assert found.value("document.documentElement.scrollWidth") <= width
        assert found.errors == []


def test_without_script_the_words_are_all_there(browser: Browser, written: Path) -> None:
    with opened(browser, written, java_script_enabled=False) as found:
        text = found.page.locator("body").inner_text()
        assert "GPU 0 is" in text
        assert "optimizer" in text
        assert "gemm_2" in text
        assert "did not run" in text


def test_it_prints(browser: Browser, written: Path) -> None:
    with opened(browser, written, color_scheme="dark") as found:
        pdf = found.page.pdf(format="A4")
        assert pdf.startswith(b"%PDF")
        found.page.emulate_media(media="print")
        assert found.page.locator("header.top").is_hidden()
        assert found.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert found.errors == []
