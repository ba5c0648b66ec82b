"""The report in a browser: it opens, zooms, sorts, searches, changes its theme, and answers to the keyboard."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.keys import Keys

import clearstate as cs
from clearstate.inventory import Entry, Inventory
from clearstate.roles import Role
from clearstate.wording import size_text
from tests.recordings import EXAMPLES, case

from .conftest import Page

Open = Callable[..., Page]


@pytest.fixture
def digits(opened: Open) -> Page:
    return opened(cs.inspect(EXAMPLES / "digits.t7"))


def test_a_report_opens_from_a_file_without_errors_and_asks_the_network_for_nothing(opened: Open) -> None:
    page = opened(cs.inspect(EXAMPLES / "digits.t7"))
    assert page.driver.title == "digits.t7"
    assert page["where"].is_displayed()
    assert page.requests() == [page.path.as_uri()]


def test_the_policy_of_the_page_stops_any_script_and_any_request_that_is_not_its_own(digits: Page) -> None:
    digits.run("""
        window.ran = [];
        addEventListener("securitypolicyviolation", (event) => window.ran.push(event.effectiveDirective));
        const script = document.createElement("script");
        script.textContent = "window.ran.push('script')";
        document.body.append(script);
        document.body.insertAdjacentHTML("beforeend", '<img src="https://example.org/x.png">');
        fetch("https://example.org/").catch(() => 0);
    """)
    digits.soon(lambda: len(digits.run("return window.ran")) == 3)
    assert sorted(digits.run("return window.ran")) == ["connect-src", "img-src", "script-src-elem"]
    assert len(digits.complaints()) >= 3  # the browser says so, too
    assert {found.get("blockedReason") for found in digits.network("loadingFailed")} == {"csp"}


def test_totals_by_role_are_those_of_the_inventory(digits: Page) -> None:
    found = cs.inspect(EXAMPLES / "digits.t7")
    shown = [
        [*row.split("\n")]
        for row in digits.run("""
        return [...document.querySelectorAll("#totals tbody tr")].map(
            (row) => row.cells[0].textContent + "\\n" + row.cells[4].textContent)""")
    ]
    assert shown == [[str(role), size_text(size)] for role, size in found.by_role().items()]


def test_a_click_on_a_module_zooms_both_into_it_and_out_again(digits: Page) -> None:
    assert digits.crumbs() == ["Sequential"]
    corner = digits.map().rect
    actions = ActionChains(digits.driver)
    head = (-corner["width"] / 2 + 20, -corner["height"] / 2 + 9)  # the heading of the largest module
    actions.move_to_element_with_offset(digits.map(), int(head[0]), int(head[1])).click().perform()
    digits.soon(lambda: digits.crumbs() == ["Sequential", "(4) SpatialConvolution"])
    assert digits["said"].text.startswith("modules[4]")
    digits.all("#crumbs button")[0].click()
    assert digits.crumbs() == ["Sequential"]


def test_area_is_bytes_and_colour_is_role(opened: Open) -> None:
    after = cs.clear_file(EXAMPLES / "digits.t7", dry_run=True).after
    page = opened(after)
    pixels = page.run("""
        const canvas = document.querySelector("#maps canvas");
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        const found = {};
        for (let i = 0; i < data.length; i += 4) {
            const colour = `rgb(${data[i]}, ${data[i + 1]}, ${data[i + 2]})`;
            found[colour] = (found[colour] || 0) + 1;
        }
        const swatches = document.querySelectorAll("#totals tbody tr .swatch");
        return [...swatches].map((swatch) => [
            swatch.closest("tr").dataset.role,
            (found[getComputedStyle(swatch).backgroundColor] || 0) / (canvas.width * canvas.height),
        ])""")
    shown = {Role(role): share for role, share in pixels}
    assert shown[Role.PARAMETER] == pytest.approx(shown[Role.GRADIENT], rel=0.1)
    for role, size in after.by_role().items():
        if size > after.size / 100:  # headings and gaps take some of the area
            assert size / after.size * 0.75 < shown[role] < size / after.size * 1.05, str(role)


def test_the_pointer_is_told_what_it_is_on(digits: Page) -> None:
    ActionChains(digits.driver).move_to_element_with_offset(digits.map(), -200, 20).perform()
    digits.soon(lambda: digits["said"].text)
    (tip,) = digits.all(".tip")
    assert tip.is_displayed()
    assert tip.text.splitlines()[0].startswith("modules[4].")
    assert tip.text.splitlines()[2] == "transient: declared"


def test_maps_are_walked_and_zoomed_by_keys_alone(digits: Page) -> None:
    digits.run("document.querySelector('#maps .canvas').focus()")
    said = digits["said"]
    digits.press(Keys.ARROW_DOWN)
    assert said.text.startswith("modules[4] · nn.SpatialConvolution · ")
    digits.press(Keys.ARROW_RIGHT)
    assert said.text.startswith("modules[5] · ")
    digits.press(Keys.ARROW_LEFT)
    digits.press(Keys.ARROW_DOWN)
    assert said.text.startswith("modules[4].f")
    digits.press(Keys.ARROW_UP)
    digits.press(Keys.ENTER)
    assert digits.crumbs()[-1] == "(4) SpatialConvolution"
    digits.press(Keys.ESCAPE)
    assert digits.crumbs() == ["Sequential"]


def test_every_piece_is_in_the_table_with_its_role_and_evidence_the_largest_first(digits: Page) -> None:
    found = cs.inspect(EXAMPLES / "digits.t7")
    first = found.largest(count=1)[0]
    assert digits.count() == f"{len(found.entries)} pieces, {size_text(found.size)}"
    assert digits.rows()[0] == [
        first.path,
        "nn.SpatialConvolution",
        "float32 32 x 144 x 64",
        "transient",
        "declared",
        size_text(first.bytes),
    ]


def test_the_table_is_sorted_by_any_column_both_ways(digits: Page) -> None:
    paths = sorted(entry.path or f"<{entry.type}>" for entry in cs.inspect(EXAMPLES / "digits.t7").entries)
    head = digits.all("#table thead button")
    head[0].click()
    assert digits.rows()[0][0] == paths[0]
    assert digits.all("#table th")[0].get_attribute("aria-sort") == "ascending"
    digits.all("#table thead button")[0].click()
    assert digits.rows()[0][0] == paths[-1]
    assert digits.all("#table th")[0].get_attribute("aria-sort") == "descending"


def test_the_table_is_searched_by_path_class_role_and_shape_together(digits: Page) -> None:
    entries = cs.inspect(EXAMPLES / "digits.t7").entries
    weights = [e for e in entries if e.role is Role.PARAMETER and "weight" in e.path]
    digits.search("parameter WEIGHT")
    digits.soon(lambda: len(digits.rows()) == len(weights))
    assert {row[0] for row in digits.rows()} == {entry.path for entry in weights}
    digits.search("linear 64 x 512")
    digits.soon(lambda: [row[0] for row in digits.rows()] == ["modules[10].weight", "modules[10].gradWeight"])
    digits.search("no such piece")
    digits.soon(lambda: digits.rows() == [])
    assert digits.count() == f"0 of {len(entries)} pieces, 0 B"


def test_a_slash_goes_to_the_search_and_escape_ends_it(digits: Page) -> None:
    digits.press("/")
    digits.press("bias")
    digits.soon(lambda: digits.rows() and all("ias" in row[0] for row in digits.rows()))
    digits.press(Keys.ESCAPE)
    digits.soon(lambda: digits.count().startswith("68 pieces"))


def test_a_role_that_is_chosen_is_all_the_table_lists(digits: Page) -> None:
    found = cs.inspect(EXAMPLES / "digits.t7")
    digits.all("#totals tbody tr[data-role=buffer] button")[0].click()
    assert {row[0] for row in digits.rows()} == {entry.path for entry in found.select("buffer")}
    digits.all("#totals tbody tr[data-role=buffer] button")[0].click()
    assert digits.count().startswith("68 pieces")


def test_the_table_is_walked_by_keys_and_shows_its_pieces_in_the_map(digits: Page) -> None:
    digits.run("document.getElementById('table').focus()")
    digits.press(Keys.END)
    assert digits.texts("#table tr.active td:first-child") == [digits.rows()[-1][0]]
    digits.press(Keys.HOME, Keys.ARROW_DOWN, Keys.ENTER)
    assert digits.texts("#table tr.active td:first-child") == [digits.rows()[1][0]]
    assert digits.crumbs()[-1] == "(4) SpatialConvolution"
    digits["within"].click()
    assert {row[1] for row in digits.rows()} == {"nn.SpatialConvolution"}
    assert digits.count().startswith("8 of 68 pieces")


def test_the_theme_follows_the_system_until_one_is_chosen(digits: Page) -> None:
    def background() -> str:
        return str(digits.run("return getComputedStyle(document.body).backgroundColor"))

    def system(theme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": theme}]
        digits.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    system("light")
    light = background()
    system("dark")
    dark = background()
    assert light != dark
    try:
        digits["theme"].click()
        assert digits["theme"].text == "Theme: light"
        assert background() == light
        digits["theme"].click()
        assert digits["theme"].text == "Theme: dark"
        system("light")
        assert background() == dark
        digits.driver.refresh()
        assert background() == dark
    finally:
        digits.run("localStorage.clear()")


def test_before_and_after_stand_side_by_side_at_one_scale_and_move_together(opened: Open) -> None:
    done = cs.clear_file(EXAMPLES / "digits.t7", dry_run=True)
    page = opened(done.before, done.after)
    captions = page.texts("figcaption")
    assert captions[0] == f"Before: {size_text(done.before.size)}"
    assert captions[1].startswith(f"After: {size_text(done.after.size)}, ")
    old, new = (map_.rect for map_ in (page.map(0), page.map(1)))
    assert abs(old["y"] - new["y"]) < 2
    assert new["x"] > old["x"] + old["width"]
    share = new["width"] * new["height"] / (old["width"] * old["height"])
    assert share == pytest.approx(done.after.size / done.before.size, rel=0.05)
    page["scale"].click()
    assert page.map(1).rect["width"] == pytest.approx(old["width"], abs=2)
    page.run("document.querySelector('#maps .canvas').focus()")
    page.press(Keys.ARROW_DOWN, Keys.ENTER)
    held = {
        side: sum(e.bytes for e in inventory.entries if e.path.startswith("modules[4]."))
        for side, inventory in enumerate((done.before, done.after))
    }
    assert [text.split(": ")[1].split(",")[0] for text in page.texts("figcaption")] == [
        size_text(n) for n in held.values()
    ]
    rows = {row[0]: row[5:] for row in page.rows()}
    assert rows["modules[4].output"] == ["262 kB", "0 B"]
    assert rows["modules[10].weight"] == ["131 kB", "131 kB"]


def test_the_graph_of_an_nngraph_net_is_drawn_from_its_file_and_leads_to_its_modules(opened: Open) -> None:
    page = opened(cs.inspect(case("gModule-2") / "before.t7"))
    assert page["flow"].is_displayed()
    assert page["graph"].get_attribute("data-nodes") == "28"
    page.run("document.getElementById('graph').focus()")
    assert page["step"].text.startswith("input · read by split in 3")
    page.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    assert page["step"].text.startswith("(1) Identity · nn.Identity, ")
    page.press(Keys.ENTER)
    assert page.crumbs() == ["gModule", "(1) Identity"]
    page["closer"].click()
    page["whole"].click()


def test_a_model_without_a_graph_shows_none(digits: Page) -> None:
    assert not digits["flow"].is_displayed()


def big(pieces: int) -> Inventory:
    """A model of this many pieces in modules of 40 modules of 10 pieces."""
    modules = {"": "nn.Sequential"}
    entries = []
    roles = list(Role)
    for i in range(pieces // 10):
        outer = f"modules[{i // 40 + 1}]"
        path = f"{outer}.modules[{i % 40 + 1}]"
        modules[outer], modules[path] = "nn.Sequential", "nn.Linear"
        for k in range(10):
            size = 400 + (i * 7919 + k * 104729) % 100_000
            where = f"{path}.field{k}"
            role = roles[(i + k) % len(roles)]
            entries.append(Entry(where, path, "torch.FloatTensor", role, size, "declared", "float32", (size // 4,)))
    return Inventory("big.t7", "Torch7 file", sum(entry.bytes for entry in entries), tuple(entries), modules)


def test_100_000_pieces_make_no_more_elements_and_tiles_than_a_screen_holds(opened: Open) -> None:
    inventory = big(100_000)
    page = opened(inventory)

    def elements() -> int:
        return int(page.run("return document.querySelectorAll('*').length"))

    assert page.count() == f"100,000 pieces, {size_text(inventory.size)}"
    assert elements() < 1500
    assert 100 < int(page.map().get_attribute("data-tiles") or 0) < 5000
    page.run("const box = document.getElementById('scroller'); box.scrollTop = box.scrollHeight")
    smallest = min(inventory.entries, key=lambda entry: entry.bytes)
    page.soon(lambda: size_text(smallest.bytes) in page.rows()[-1])
    assert elements() < 1500
    page.search("modules[137].modules[8].")
    page.soon(lambda: len(page.rows()) == 10)
    assert {row[0] for row in page.rows()} == {f"modules[137].modules[8].field{k}" for k in range(10)}
    page.search("")
    page.soon(lambda: page.count().startswith("100,000 pieces"))
    page.all("#table thead button")[0].click()
    assert page.rows()[0][0] == "modules[1].modules[1].field0"
    page.run("document.querySelector('#maps .canvas').focus()")
    page.press(Keys.ARROW_DOWN, Keys.ENTER, Keys.ARROW_DOWN, Keys.ENTER)
    assert len(page.crumbs()) == 3
    assert elements() < 1500


def test_a_notebook_shows_the_report_in_a_frame_that_cannot_reach_it(digits: Page, tmp_path: Path) -> None:
    notebook = tmp_path / "notebook.html"
    shown = cs.inspect(case("gModule-2") / "before.t7")._repr_html_()
    notebook.write_text(f"<!doctype html><meta charset=utf-8><body>{shown}</body>", encoding="utf-8")
    digits.driver.get(notebook.as_uri())
    digits.driver.switch_to.frame(0)
    try:
        digits.soon(lambda: digits.count() == "55 pieces, 49.7 kB")
        assert digits.map().rect["width"] > 500
        assert digits.run("return self.origin") == "null"
    finally:
        digits.driver.switch_to.default_content()
    assert digits.texts("summary")[0].endswith(": Torch7 file, binary, 8-byte long, 49.7 kB")


def test_paper_gets_the_page_in_light_colours_with_the_largest_pieces(digits: Page) -> None:
    pdf = digits.driver.print_page()
    assert len(pdf) > 20_000
    assert digits.run("return document.documentElement.dataset.theme") == "automatic"
    digits.run("dispatchEvent(new Event('beforeprint'))")
    assert len(digits.rows()) == 68
    assert digits.run("return document.documentElement.dataset.theme") == "light"
    digits.run("dispatchEvent(new Event('afterprint'))")


@pytest.mark.parametrize("width", [400, 1280])
def test_all_fits_the_window_and_every_part_counts_the_same_pieces(opened: Open, width: int) -> None:
    done = cs.clear_file(EXAMPLES / "digits.t7", dry_run=True)
    page = opened(done.before, done.after)
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    try:
        page.driver.refresh()
        assert page.run("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        over = """const edge = (element) => element.getBoundingClientRect().right;
            return [...document.querySelectorAll(".card")].flatMap((card) =>
                [...card.querySelectorAll("#totals, #maps canvas")].map((inside) => edge(inside) - edge(card)))"""
        assert max(page.run(over)) < 0
        assert (
            page.run("""return [...document.querySelectorAll('#table td .swatch')].map((e) => e.parentElement)
            .filter((cell) => cell.scrollWidth > cell.clientWidth).length""")
            == 0
        )
        pieces = sum(map(int, page.texts("#totals tbody td:nth-child(4)")))
        assert page.count() == f"{pieces} pieces, 4.9 MB"
        assert f", {pieces} pieces in 14 modules" in page.texts(".lead")[0]
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
