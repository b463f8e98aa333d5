"""The web page in a real browser: looked at, clicked, typed into. Pictures are kept in .cache/screenshots."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Page,
    Request,
    Route,
    TimeoutError,
    ViewportSize,
    expect,
    sync_playwright,
)
from pyspark.sql import SparkSession

import lastword
from lastword.jobs.runner import Progress, Runner
from lastword.store import Store
from lastword.testing import ManualClock
from lastword.topic import Topic
from lastword.ui.cleanings import on_spark
from lastword.ui.demo import fill
from lastword.ui.guard import Access
from tests.notation import clean, write
from tests.waiting import until
from tests.web import CHROMIUM, FLAGS, TOKEN, screenshot_path, served

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
DESK = ViewportSize(width=1280, height=720)
PHONE = ViewportSize(width=375, height=740)
PATIENCE_MS = 150_000  # a busy machine's page is slow, too

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Open]:
    """Open a page as a new visitor. It must ask nobody else for anything, and have nothing to complain of,

    but for answers with a status that the test is marked to provoke.
    """
    complaints: list[str] = []
    strangers: list[str] = []
    contexts = []

    def call(address: str, **options: object) -> Page:
        context = browser.new_context(**options)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        own = urlsplit(address).netloc

        def asked(request: Request) -> None:
            strangers.extend([request.url] * (urlsplit(request.url).netloc != own))

        def said(message: ConsoleMessage) -> None:
            complaints.extend([message.text] * (message.type == "error"))

        page.on("request", asked)
        page.on("console", said)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address)
        return page

    yield call
    for context in contexts:
        context.close()
    assert strangers == []
    provoked = request.node.get_closest_marker("provokes")
    expected = [f"status of {status}" for status in (provoked.args if provoked else ())]
    # Pages refresh, and a test's server may end before its pages do.
    unexpected = [c for c in complaints if "net::ERR_" not in c or "BLOCKED" in c]
    assert [c for c in unexpected if not any(e in c for e in expected)] == []


@pytest.fixture(scope="module")
def demo_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """The store that `lastword ui --demo` shows."""
    folder = tmp_path_factory.mktemp("demo")
    fill(str(folder))
    with lastword.open(folder) as store:
        yield store


@pytest.fixture(scope="module")
def demo(demo_store: Store) -> Iterator[str]:
    """Its page; what was counted there is known to all."""
    with served(demo_store) as address:
        yield address


@pytest.fixture
def new_demo(demo_store: Store) -> Iterator[str]:
    """Its page, of which nobody has asked anything."""
    with served(demo_store) as address:
        yield address


@pytest.mark.parametrize(
    ("name", "path", "title"),
    [
        ("overview", "/", "5 topics"),
        ("topic", "/topics/shop.carts", "shop.carts"),
        ("topic-segment", "/topics/users?partition=0&segment=0&scale=bytes", "users"),
        ("pass", "/passes/8", "Pass 8 over users-1"),
        ("passes", "/passes", "Passes"),
        ("records", "/topics/shop.carts/records", "Records of shop.carts"),
        ("record", "/topics/users/records/0/2000", "users-0, offset 2000"),
        ("settings", "/settings", "Settings of the store"),
        ("new", "/new", "New topic"),
        ("scene", "/scene", "Log compaction, by doing it"),
        pytest.param("unknown", "/topics/nope", "Not there", marks=pytest.mark.provokes(404)),
    ],
)
def test_every_page_by_day_by_night_and_on_a_phone(
    visit: Open, demo: str, name: str, path: str, title: str
) -> None:
    page = visit(demo + path, color_scheme="dark", viewport=DESK)
    expect(page.locator("h1")).to_contain_text(title)
    if name == "scene":
        expect(page.locator("#log .record")).to_have_count(11)
    page.screenshot(path=screenshot_path(f"{name}-dark"), full_page=True)
    dark = _background(page)
    assert _pale(page) == []
    page.emulate_media(color_scheme="light")
    assert _background(page) != dark
    assert _pale(page) == []
    assert not _scrolls_sideways(page)
    page.set_viewport_size(PHONE)
    page.screenshot(path=screenshot_path(f"{name}-phone"), full_page=True)
    assert not _scrolls_sideways(page)
    page.set_viewport_size(DESK)
    picture(page, name)


def arrived(page: Page, held: list[Route]) -> Route:
    """The request that is held back, when it has been made."""
    for _ in range(PATIENCE_MS // 20):
        if held:
            return held[0]
        page.wait_for_timeout(20)
    raise AssertionError("it was not made")


def picture(page: Page, name: str) -> None:
    """A picture for the docs: without the path of the store."""
    page.evaluate("document.querySelector('footer').remove()")
    page.screenshot(path=screenshot_path(name), full_page=name != "topic-survivors")


def _scrolls_sideways(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth > window.innerWidth"))


def _pale(page: Page) -> list[str]:
    """Texts with less contrast than WCAG AA asks for, 4.5 : 1, but for what cannot be used now."""
    found: list[str] = page.evaluate(_PALE)
    return found


_PALE = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const drawn = (colours) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const luminance = (rgb) => rgb.map((c) => c / 255)
    .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const hasText = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!hasText || !element.checkVisibility({ opacityProperty: true })) continue;
    if (element.closest("svg, #told, :disabled, script")) continue;
    const within = [];
    for (let e = element; e; e = e.parentElement) within.unshift(getComputedStyle(e));
    const behind = within.map((style) => style.backgroundColor), ink = within.at(-1).color;
    const opacity = within.reduce((product, style) => product * style.opacity, 1);
    const [dim, bright] = [behind, [...behind, ink]].map(drawn).map(luminance).sort((a, b) => a - b);
    const contrast = (bright + 0.05) / (dim + 0.05);
    if (contrast < 4.5 || opacity < 1) found.push(`${element.textContent.trim()}: ${contrast.toFixed(2)}, ${opacity}`);
  }
  return found;
}"""


def _background(page: Page) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


class TestOverview:
    def test_it_is_filtered_while_one_types_and_sorted_by_keyboard(
        self, visit: Open, demo: str
    ) -> None:
        page = visit(demo)
        rows = page.locator("table.topics tbody tr")
        expect(rows).to_have_count(5)
        page.locator("#filter").press_sequentially("shop")
        expect(rows).to_have_count(2)
        expect(page.get_by_role("status").first).to_have_text("2 topics match “shop”")
        expect(page.locator("#filter")).to_be_focused()
        page.locator("#filter").fill("")
        expect(rows).to_have_count(5)
        page.get_by_role("link", name="size").focus()
        page.keyboard.press("Enter")
        expect(page.locator("th[aria-sort='descending']")).to_have_text("size")

    def test_it_is_sorted_on_a_phone(self, visit: Open, demo: str) -> None:
        page = visit(demo, viewport=PHONE)
        page.get_by_label("Sort by").select_option(label="size")
        page.get_by_role("button", name="Filter").click()
        expect(page).to_have_url(re.compile("sort=-bytes$"))
        expect(page.locator("table.topics tbody th").first).to_contain_text("audit.events")

    def test_keys_are_counted_on_demand(self, visit: Open, new_demo: str) -> None:
        page = visit(new_demo)
        row = page.locator("tr", has=page.get_by_role("link", name="shop.prices", exact=True))
        expect(row).to_contain_text("≈")
        row.get_by_role("button", name="count").click()
        expect(row.locator("td[data-label='live keys']")).to_have_text("80")

    def test_it_refreshes_by_itself(self, visit: Open, local: Store, clock: ManualClock) -> None:
        with served(local) as address:
            page = visit(address)
            expect(page.locator("#overview")).to_contain_text("There are no topics yet")
            local.create_topic("came.first")
            first = page.get_by_role("link", name="came.first")
            expect(first).to_be_visible()
            first.focus()
            local.create_topic("came.later")
            expect(page.get_by_role("link", name="came.later")).to_be_visible()
            expect(first).to_be_focused()

    def test_it_refreshes_even_if_answers_take_long(self, visit: Open, local: Store) -> None:
        with served(local) as address:
            page = visit(address)
            page.clock.install()
            page.reload()
            answers: list[Route] = []

            def hold(route: Route) -> None:
                answers.append(route)

            page.route(address + "/", hold)
            with page.expect_request(address + "/"):
                page.clock.run_for(6_000)
            for _ in range(2):
                with suppress(TimeoutError), page.expect_request(address + "/", timeout=500):
                    page.clock.run_for(6_000)
            assert len(answers) == 1  # the next is asked for when this one has come
            local.create_topic("came")
            until(lambda: "came" in page.request.get(address).text())  # the next is being made
            answers[0].continue_()
            expect(page.get_by_role("link", name="came")).to_be_visible()


class TestTopic:
    def test_a_segment_is_looked_at(self, visit: Open, demo: str) -> None:
        page = visit(f"{demo}/topics/shop.carts")
        expect(page.locator("a.bar[aria-current]")).to_have_count(0)
        page.locator("a.bar.dirty").first.click()
        expect(page.locator("#segment")).to_contain_text("offsets")
        expect(page.locator("a.bar[aria-current]")).to_have_class("bar dirty")
        expect(page.locator("a.bar[aria-current]")).to_be_in_viewport()
        expect(page.locator("#segment .chip")).to_have_text("dirty")
        page.get_by_role("link", name="browse its records").click()
        expect(page.locator("table.records tbody tr").first).to_be_visible()
        page.get_by_label("From").fill("")
        page.get_by_role("button", name="Show").click()
        expect(page.locator("table.records tbody tr").first).to_be_visible()

    def test_from_segment_to_segment(self, visit: Open, demo: str) -> None:
        page = visit(f"{demo}/topics/shop.carts?partition=0&segment=0")
        page.get_by_role("link", name="next", exact=True).click()
        expect(page.locator("#segment .chip")).to_have_text("dirty")
        page.get_by_role("link", name="close").click()
        expect(page.locator("#segment")).to_have_count(0)

    def test_survivors_are_counted_and_drawn(self, visit: Open, new_demo: str) -> None:
        page = visit(f"{new_demo}/topics/shop.carts", viewport={"width": 1100, "height": 860})
        expect(page.locator("rect.alive")).to_have_count(0)
        page.get_by_role("button", name="count survivors").click()
        expect(page.locator("rect.alive").first).to_be_attached()
        picture(page, "topic-survivors")

    def test_json_is_folded(self, visit: Open, demo: str) -> None:
        page = visit(f"{demo}/topics/users/records")
        first = page.locator("details").first
        expect(first.locator("pre")).to_be_hidden()
        first.locator("summary").click()
        expect(first.locator("pre")).to_contain_text('"city"')

    def test_settings_are_fresh_but_for_those_that_somebody_types(
        self, visit: Open, local: Store
    ) -> None:
        topic = local.create_topic("t")
        with served(local) as address:
            page = visit(f"{address}/topics/t")
            ratio = page.locator("form[data-key='min.cleanable.dirty.ratio'] input")
            topic.alter({"min.cleanable.dirty.ratio": 0.25})
            expect(ratio).to_have_value("0.25")
            jitter = page.locator("form[data-key='segment.jitter.ms'] input")
            jitter.fill("77")
            jitter.blur()
            topic.alter({"min.cleanable.dirty.ratio": 0.75})
            topic.pause()
            expect(page.locator("#pause")).to_have_text("Resume")  # it was refreshed since
            expect(jitter).to_have_value("77")
            jitter.fill("0")
            jitter.blur()
            expect(ratio).to_have_value("0.75")

    def test_who_types_before_the_script_is_there_can_save(self, visit: Open, local: Store) -> None:
        local.create_topic("t")
        with served(local) as address:
            page = visit(address)
            scripts: list[Route] = []

            def hold(route: Route) -> None:
                scripts.append(route)

            page.route("**/static/page.js", hold)
            page.goto(f"{address}/topics/t", wait_until="commit")
            form = page.locator("form[data-key='segment.jitter.ms']")
            form.locator("input").fill("77")
            expect(form.get_by_role("button", name="Save")).to_be_hidden()
            arrived(page, scripts).continue_()
            expect(form.get_by_role("button", name="Save")).to_be_visible()

    def test_growth_appears_by_itself(self, visit: Open, local: Store) -> None:
        topic = local.create_topic("t")
        with served(local) as address:
            page = visit(f"{address}/topics/t")
            expect(page.locator("svg.growth")).to_have_count(0)
            write(topic, "a=1*")
            expect(page.locator("svg.growth")).to_be_visible()
            expect(page.locator("svg.growth > text").first).to_contain_text("bytes")
            expect(page.locator(".times")).to_contain_text("now")


class TestDoing:
    @pytest.mark.provokes(400)
    def test_a_topic_is_created_altered_and_cleaned(
        self, visit: Open, local: Store, spark: SparkSession
    ) -> None:
        may_begin = threading.Event()

        def when_told(progress: Progress) -> Runner:
            may_begin.wait(PATIENCE_MS / 1000)
            return on_spark(None, {})(progress)

        with served(local, new_runner=when_told) as address:
            page = visit(f"{address}/new#token={TOKEN}")
            assert TOKEN not in page.url  # it is taken off the address
            page.get_by_label("Name").fill("users")
            page.get_by_label("Other settings").fill("segment.mss=5")
            page.get_by_role("button", name="Create").click()
            expect(page.locator("#new-topic output")).to_contain_text("did you mean 'segment.ms'?")
            page.get_by_label("Other settings").fill("segment.ms=3600000")
            expect(page.locator("#new-topic output")).to_have_text("")
            page.get_by_role("button", name="Create").click()
            expect(page.locator("h1")).to_contain_text("users")
            assert local.topic("users").config.segment_ms == 3_600_000

            self.alter(page, "min.cleanable.dirty.ratio", "7")
            expect(page.locator("form[data-key='min.cleanable.dirty.ratio'] output")).to_contain_text("must be less than or equal to 1")  # fmt: skip
            page.locator("form[data-key='min.cleanable.dirty.ratio'] input").press("Escape")
            expect(page.locator("form[data-key='min.cleanable.dirty.ratio'] output")).to_have_text(
                ""
            )
            unsaved = page.locator("form[data-key='segment.jitter.ms'] input")
            unsaved.fill("77")
            self.alter(page, "min.cleanable.dirty.ratio", "0.9")
            expect(page.locator("tr.overridden input").first).to_have_value("0.9")
            expect(page.locator("#told")).to_contain_text("min.cleanable.dirty.ratio is saved")
            expect(unsaved).to_have_value("77")
            unsaved.press("Escape")
            expect(unsaved).to_have_value("0")
            unsaved.fill("77")
            assert local.topic("users").config.min_cleanable_dirty_ratio == 0.9
            page.locator("form[data-key='compression.type'] select").select_option("zstd")
            page.locator("form[data-key='compression.type'] button").first.click()
            expect(page.locator("#told")).to_contain_text("compression.type is saved")
            page.locator("form[data-key='compression.type'] [data-reset]").click()
            expect(page.locator("#told")).to_contain_text("back at its default")
            assert local.topic("users").config.compression_type == "lz4"

            write(local.topic("users"), "a=1 a=2 b=1*")
            page.reload()
            page.get_by_role("button", name="Clean…").click()
            plan = page.locator("#plan")
            expect(plan).to_contain_text("all that is dirty is in the active segment")
            expect(page.locator("#clean-now")).to_be_disabled()
            page.get_by_label("force").check()
            expect(plan).to_contain_text("would be cleaned (forced")
            page.get_by_role("button", name="Count what would be removed").click()
            expect(plan).to_contain_text("3 → 2 records: 1 obsolete would be removed")
            page.screenshot(path=screenshot_path("clean"))
            page.locator("#clean-now").click()
            page.keyboard.press("Escape")
            page.get_by_role("button", name="Clean…").click()
            expect(page.get_by_label("force")).to_be_disabled()
            may_begin.set()
            expect(plan).to_contain_text("1 partition cleaned in")
            expect(plan).to_contain_text("partition 0: 3 → 2 records; 1 obsolete removed")
            expect(plan).not_to_contain_text("would be")
            page.get_by_role("button", name="Close").click()
            expect(page.locator("#passes tbody tr")).to_have_count(1)
            assert [r.offset for r in local.topic("users").read(0)] == [1, 2]

    def test_the_plan_that_is_shown_is_that_of_the_box(self, visit: Open, local: Store) -> None:
        """Though the answers may come in another order."""
        write(local.create_topic("t"), "a=1 a=2*")
        with served(local) as address:
            page = visit(f"{address}/topics/t#token={TOKEN}")
            page.get_by_role("button", name="Clean…").click()
            plan, force = page.locator("#plan"), page.get_by_label("force")
            expect(plan).to_contain_text("would not be cleaned")
            late: list[Route] = []

            def hold(route: Route) -> None:
                late.append(route)

            page.route("**/plan?force=true", hold)
            force.check()
            force.uncheck()
            expect(plan).to_contain_text("0 of 1 partition would be cleaned")
            route = arrived(page, late)
            with page.expect_response("**/plan?force=true"):
                route.continue_()
            page.wait_for_load_state("networkidle")
            expect(plan).to_contain_text("0 of 1 partition would be cleaned")
            expect(page.locator("#clean-now")).to_be_disabled()

    def alter(self, page: Page, key: str, value: str) -> None:
        form = page.locator(f"form[data-key='{key}']")
        form.locator("input").fill(value)
        form.get_by_role("button", name="Save").click()

    def test_by_keyboard(self, visit: Open, local: Store) -> None:
        """Nothing takes the focus away, and what was done is said."""
        write(local.create_topic("t"), "a=1 a=2 b=1 | a=3*")
        with served(local) as address:
            page = visit(f"{address}/topics/t#token={TOKEN}")
            told = page.locator("#told")
            for said, now in (("t is paused", "Resume"), ("t is resumed", "Pause")):
                page.locator("#pause").focus()
                page.keyboard.press("Enter")
                expect(told).to_have_text(said)
                expect(page.locator("#pause")).to_have_text(now)
                expect(page.locator("#pause")).to_be_focused()
            for button, said, part, again in (
                ("count the keys of t", "The keys of t are counted", "#head", 0),
                ("count survivors", "The survivors of partition 0 are counted", "#anatomy", 1),
            ):
                page.get_by_role("button", name=button).focus()
                page.keyboard.press("Enter")
                expect(told).to_have_text(said)
                expect(page.get_by_role("button", name=button)).to_have_count(again)
                expect(page.locator(f"{part}:focus, {part} :focus")).to_have_count(1)
            page.get_by_role("button", name="Clean…").focus()
            page.keyboard.press("Enter")
            page.get_by_label("force").focus()
            page.keyboard.press("Space")
            expect(page.locator("#plan")).to_contain_text("would be cleaned (forced")
            page.keyboard.press("Enter")  # no form is sent by that
            expect(page.locator("#clean-dialog")).to_be_visible()
            page.get_by_role("button", name="Close").focus()
            page.keyboard.press("Enter")
            expect(page.locator("#clean-dialog")).to_be_hidden()

    @pytest.mark.provokes(401)
    def test_without_the_token_it_is_asked_for(self, visit: Open, local: Store) -> None:
        topic = local.create_topic("t")
        with served(local) as address:
            page = visit(f"{address}/topics/t")
            page.locator("#pause").click()
            dialog = page.locator("#token-dialog")
            expect(dialog).to_be_visible()
            page.screenshot(path=screenshot_path("token"))
            dialog.get_by_role("button", name="Cancel").click()
            expect(page.locator("#told")).to_contain_text("Nothing was changed")
            assert not topic.row.is_paused
            page.locator("#pause").click()
            page.locator("#token").fill("wrong")
            dialog.get_by_role("button", name="Unlock").click()
            expect(dialog.locator("output")).to_contain_text("not the token")
            assert not topic.row.is_paused
            page.locator("#token").fill(f"{address}/#token={TOKEN}")
            page.keyboard.press("Enter")
            expect(page.locator("#pause")).to_have_text("Resume")
            assert topic.row.is_paused

    @pytest.mark.provokes(401)
    def test_a_browser_that_has_the_password_needs_the_token_besides(
        self, visit: Open, local: Store
    ) -> None:
        topic = local.create_topic("t")
        with served(local, Access(token=TOKEN, password="secret")) as address:
            page = visit(
                f"{address}/topics/t", http_credentials={"username": "any", "password": "secret"}
            )
            page.locator("#pause").click()
            page.locator("#token").fill(TOKEN)
            page.keyboard.press("Enter")
            expect(page.locator("#pause")).to_have_text("Resume")
            assert topic.row.is_paused

    @pytest.mark.provokes(401)
    def test_who_does_not_give_the_token_can_still_go_on(self, visit: Open, local: Store) -> None:
        write(local.create_topic("t", 120), "a=1 | a=2*", partition=110)
        with served(local) as address:
            page = visit(f"{address}/topics/t")
            page.get_by_role("button", name="Clean…").click()
            plan = page.locator("#plan p")
            expect(plan.nth(0)).to_contain_text("1 of 120 partitions would be cleaned")
            expect(plan.nth(1)).to_contain_text("partition 110")  # what is due comes first
            expect(plan.last).to_have_text("and 20 more partitions")
            page.locator("#clean-now").click()
            page.locator("#token-dialog").get_by_role("button", name="Cancel").click()
            expect(plan.nth(0)).to_contain_text("Nothing was changed")
            expect(plan.nth(1)).to_contain_text("1 of 120 partitions would be cleaned")
            expect(page.locator("#clean-now")).to_be_enabled()

    def test_a_token_of_an_earlier_start(self, visit: Open, local: Store) -> None:
        with served(local) as address:
            page = visit(f"{address}/#token=old")
            expect(page.locator("#unlock")).to_be_visible()
            page.locator("#unlock").click()
            page.locator("#token").fill(TOKEN)
            page.keyboard.press("Enter")
            expect(page.locator("#unlock")).to_be_hidden()
            page.reload()
            page.wait_for_load_state("networkidle")
            expect(page.locator("#unlock")).to_be_hidden()
            page.goto(f"{address}/passes#token=old")  # which does not take the right one away
            expect(page.locator("#told")).to_contain_text("is not the one of this page")
            expect(page.locator("#unlock")).to_be_hidden()

    def test_read_only(self, visit: Open, local: Store) -> None:
        local.create_topic("t")
        with served(local, Access(read_only=True)) as address:
            page = visit(f"{address}/topics/t")
            expect(page.locator("header")).to_contain_text("read-only")
            expect(page.locator("#pause, #clean")).to_have_count(0)
            expect(page.locator("input").first).not_to_be_editable()


class TestHostile:
    def test_keys_values_headers_and_names_are_harmless(self, visit: Open, local: Store) -> None:
        topic = local.create_topic("t")
        topic.append([(HOSTILE, HOSTILE, None, ((HOSTILE, HOSTILE.encode()),))])
        topic.append([("json", f'{{"{HOSTILE[:9]}": "</pre></script>{HOSTILE[10:20]}"}}')])
        topic.append([("bidi", "abc\u202edcba"), ("bytes", b"\x00\xff<b>")])
        with served(local) as address:
            for path in ("records", "records?view=latest", "records/0/0", "records/0/1?as=text"):
                page = visit(f"{address}/topics/t/{path}")
                expect(page.locator("main")).to_contain_text("<" if "1" not in path else "</pre>")
                assert "owned" not in page.title()
                assert page.locator("main img").count() == 0
            page = visit(f"{address}/?filter={HOSTILE}")
            expect(page.locator(".empty")).to_contain_text("<img")
            assert "owned" not in page.title()

    def test_long_names_on_a_phone(self, visit: Open, local: Store) -> None:
        name = "customer_profile_changelog." * 9
        local.create_topic(name)
        with served(local) as address:
            page = visit(f"{address}/topics/{name}#token={TOKEN}", viewport=PHONE)
            assert not _scrolls_sideways(page)
            page.get_by_role("button", name="Clean…").click()
            dialog = page.locator("#clean-dialog")
            expect(dialog).to_be_visible()
            assert not _scrolls_sideways(page)
            assert dialog.evaluate("dialog => dialog.scrollWidth <= dialog.clientWidth")

    def test_values_and_headers_on_a_phone(self, visit: Open, local: Store) -> None:
        topic = local.create_topic("t")
        topic.append([("k", bytes(range(128, 228)), None, (("h" * 300, b"v"),))])
        with served(local) as address:
            page = visit(f"{address}/topics/t/records", viewport=PHONE)
            row, value = (
                page.locator("table.records tbody tr"),
                page.locator("pre.hex").locator(".."),
            )
            widths = [its.evaluate("element => element.clientWidth") for its in (row, value)]
            assert widths[0] == widths[1]
            page.goto(f"{address}/topics/t/records/0/0")
            expect(page.locator("dt")).to_contain_text("h" * 300)
            assert not _scrolls_sideways(page)


class TestStores:
    def test_an_empty_one(self, visit: Open, local: Store) -> None:
        with served(local) as address:
            page = visit(address)
            page.screenshot(path=screenshot_path("empty"))
            page.get_by_role("link", name="see what compaction does").click()
            expect(page.locator("#log .record")).to_have_count(11)

    @pytest.mark.provokes(503)
    def test_a_broken_one(self, visit: Open, local: Store, tmp_path: Path) -> None:
        topic = local.create_topic("t")
        write(topic, "a=1*")
        for file in local.base.root.files():
            Path(local.base.root.full(file.path)).unlink()
        with served(local) as address:
            page = visit(f"{address}/topics/t/records")
            expect(page.locator("main .error")).to_contain_text("is missing")
            page.screenshot(path=screenshot_path("broken"))
            with local.base.catalog.write() as tx:
                tx.exec_driver_sql("DROP TABLE file")
            page.goto(f"{address}/topics/t")
            expect(page.locator("main .error")).to_contain_text("catalog of")
            expect(page.get_by_role("link", name="All topics")).to_be_visible()

    @pytest.mark.provokes(503)
    def test_one_that_breaks_while_somebody_looks(self, visit: Open, local: Store) -> None:
        local.create_topic("t")
        with served(local) as address:
            page = visit(address)
            expect(page.get_by_role("link", name="t", exact=True)).to_be_visible()
            with local.base.catalog.write() as tx:
                tx.exec_driver_sql("DROP TABLE file")
            stale = page.locator("#stale")
            expect(stale).to_be_visible()
            expect(stale).to_contain_text(
                re.compile("This is as of .*, and cannot be refreshed: .*catalog of")
            )
            assert not _scrolls_sideways(page)
            page.screenshot(path=screenshot_path("stale"))
        expect(stale).to_contain_text("the page's server does not answer")  # for it has ended

    def test_one_that_failed(self, visit: Open, local: Store) -> None:
        topic: Topic = local.create_topic("t")
        write(topic, "a=1 a=2")
        for file in local.base.root.files():
            Path(local.base.root.full(file.path)).unlink()
        (done,) = clean(topic)
        with served(local) as address:
            page = visit(address)
            expect(page.locator(".chip.bad").first).to_contain_text("1 topic needs attention")
            page.goto(f"{address}/passes/{done.id}")
            expect(page.locator("main")).to_contain_text("It changed nothing")


_SLOW = """() => {
  const quick = window.fetch;
  window.fetch = async (...asked) => {
    await new Promise((resolve) => setTimeout(resolve, 300));
    return quick(...asked);
  };
}"""


class TestScene:
    """Played through to the end, as `What to try` says."""

    def test_it_is_played(self, visit: Open, demo: str) -> None:
        look = {"width": 1100, "height": 900}
        page = visit(f"{demo}/scene", reduced_motion="reduce", viewport=look)
        log, message = page.locator("#log .record"), page.locator("#scene-message")
        latest = page.locator("#latest tbody")
        expect(log).to_have_count(11)
        before = latest.inner_text()
        for said in (
            "Plan: it would be cleaned",
            "5 keys went into the map. To go: 3 obsolete. Newer records of K2 and K5 come from offset 8 on",
            "Sweep: 5 survivors to 1 new file",
        ):
            self.press(page, "#step")
            expect(message).to_contain_text(said)
        expect(page.locator("#steps .done")).to_have_count(2)
        expect(page.locator("#map tbody tr")).to_have_count(5)
        expect(page.locator("#new-file .record")).to_have_count(5)
        expect(page.locator("#log .record.goes")).to_have_count(3)
        assert _pale(page) == []
        picture(page, "scene-swept")
        self.press(page, "#step")
        expect(message).to_contain_text("Commit: the files were swapped")
        expect(page.locator("#log .record.gone")).to_have_count(3)
        assert _pale(page) == []
        assert latest.inner_text() == before

        page.get_by_label("Value", exact=True).fill("again")
        self.press(page, "#send-value")
        self.press(page, "#step")
        expect(message).to_contain_text("all that is dirty is in the active segment")
        self.press(page, "#send-null")
        self.press(page, "#roll")
        self.clean(page)
        expect(latest).not_to_contain_text("K1")
        tombstone = page.locator("#log .record.null")
        expect(tombstone).to_contain_text("stays 1 h")
        self.press(page, "[data-advance='600000']")
        expect(tombstone).to_contain_text("50 min")
        self.press(page, "[data-advance='3600000']")
        expect(tombstone).to_contain_text("may go")
        self.clean(page)
        expect(tombstone).to_have_count(0)
        expect(page.locator("#totals")).to_contain_text("1 tombstone removed")
        page.screenshot(path=screenshot_path("scene-end"), full_page=True)
        self.press(page, "#again")
        expect(page.locator("#log .record.gone")).to_have_count(0)

    def test_no_click_is_lost_and_a_scene_goes_on_after_a_reload(
        self, visit: Open, demo: str
    ) -> None:
        page = visit(f"{demo}/scene")
        expect(page.locator("#log .record")).to_have_count(11)
        for what in ("#step", "#step", "#send-value", "#send-value", "#step", "#step"):
            page.locator(what).click()
        expect(page.locator("#scene-message")).to_contain_text("Commit:")
        expect(page.locator("#latest tbody")).to_contain_text("V13")
        page.reload()
        expect(page.locator("#log .record:not(.gone)")).to_have_count(10)
        expect(page.locator("#log .record.gone")).to_have_count(3)
        expect(page.locator("#scene-message")).to_contain_text("Commit:")
        expect(page.get_by_label("Value", exact=True)).to_have_value("V14")

    def test_it_begins_anew_in_the_middle_of_something(self, visit: Open, demo: str) -> None:
        page = visit(f"{demo}/scene")
        expect(page.locator("#log .record")).to_have_count(11)
        self.press(page, "#send-value")
        page.evaluate(_SLOW)
        for what in ("#step", "#step", "#again"):
            page.locator(what).click()
        expect(page.locator("#scene")).to_have_attribute("aria-busy", "false")
        expect(page.locator("#log .record")).to_have_count(11)
        expect(page.locator("#told")).to_have_text("")

    @pytest.mark.provokes(400, 404)
    def test_what_cannot_be_is_said_and_a_scene_that_is_over_begins_anew(
        self, visit: Open, local: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lastword.ui.scenes._MOST_SCENES", 1)
        with served(local) as address:
            page = visit(f"{address}/scene")
            expect(page.locator("#log .record")).to_have_count(11)
            page.get_by_label("Key", exact=True).fill("")
            page.locator("#send-null").click()  # the browser asks for a key
            expect(page.get_by_label("Key", exact=True)).to_be_focused()
            page.get_by_label("Key", exact=True).fill("K9")
            monkeypatch.setattr("lastword.ui.scene.MOST_RECORDS", 12)
            self.press(page, "#send-value")
            self.press(page, "#send-value")
            expect(page.locator("#scene-message")).to_contain_text("12 records at the most")
            expect(page.locator("#log .record")).to_have_count(12)
            expect(visit(f"{address}/scene").locator("#log .record")).to_have_count(11)
            page.locator("#step").click()
            expect(page.locator("#log .record")).to_have_count(11)
            expect(page.locator("#scene-message")).to_contain_text("Let the cleaner look")

    def test_mark_is_shown_as_it_went(self, visit: Open, demo: str) -> None:
        page = visit(f"{demo}/scene")
        expect(page.locator("#log .record")).to_have_count(11)
        self.press(page, "#step")
        page.clock.install(time=0)
        page.clock.pause_at(1_000_000)  # no machine is so slow that this is in the past
        page.locator("#step").click()
        for read, keys in (("K5 = V8", 1), ("K4 = V7", 2), ("K2 = V6", 3), ("K3 = V5", 4)):
            expect(page.locator("#log .record.read")).to_have_attribute(
                "aria-label", re.compile(read)
            )
            expect(page.locator("#map tbody tr")).to_have_count(keys)
            page.clock.run_for(160)
        page.clock.resume()
        expect(page.locator("#log .record.read")).to_have_count(0)
        expect(page.locator("#map tbody tr")).to_have_count(5)

    def press(self, page: Page, what: str) -> None:
        page.locator(what).click()
        expect(page.locator("#scene")).to_have_attribute("aria-busy", "false")

    def clean(self, page: Page) -> None:
        for _ in range(4):
            self.press(page, "#step")
        expect(page.locator("#scene-message")).to_contain_text("Commit:")
