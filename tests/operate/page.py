#!/usr/bin/env python3
"""/status in a real Chromium, over a loaded daemon.

page.py KERNSERVE [--keep FOLDER]    with the Python of requirements.txt. Exit code 77: chromium or a package is missing
page.py KERNSERVE --saved FOLDER     only pictures of the page that tests/gpu/observed.py saved there

  - light and dark, 1280 and 390 pixels wide, and without script: nothing is asked of any other place, no line on the console, no
    overflow, and axe finds nothing wrong (of a planted fault it does)
  - the figures of the page, drawn by script and written by the daemon, are those of status.json
  - names of clients stay text; the policy's hashes let the script run, and no other
  - a daemon that ends and comes back is seen to be away, and back; the roofline has a point for each plan with figures, and none before the ceilings are known; a thousand plans and 4,000 launches take 100 ms of script, style and layout
Screenshots are kept in FOLDER, preset: status-page beside KERNSERVE.
"""

import argparse
import json
import os
import random
import re
import shutil
import sys
import threading
import time

try:
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import sync_playwright
except ImportError as missing:
    print("the package %s is not installed" % missing.name)
    sys.exit(77)

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "http"))
from daemon import Daemon, Remote, check, request, wrongs
from ports import free_ports

HOSTILE = "<img/src=x>"
NAMES = (HOSTILE, "a & b", "request-7", "x" * 60)
DRAW_MS = 100
FIGURES = """id => [...document.getElementById(id).querySelectorAll("tbody tr")].map(tr =>
    [tr.cells[0].textContent, ...[...tr.querySelectorAll("data")].map(d => Number(d.value))])"""


def infer(rows, cols, name):
    return request("POST", "/v2/models/softmax/infer?shape=%d,%d&datatype=FP32" % (rows, cols), [("X-Request-Id", name)], bytes(rows * cols * 4))


def load(daemon, stop):
    drawn = random.Random(5)
    with daemon.connect() as connection:
        while not stop.is_set():
            connection.ask(infer(drawn.choice((1, 3, 17, 64, 200)), drawn.choice((64, 256, 1000)), drawn.choice(NAMES)))
            if drawn.random() < 0.02:
                connection.ask(request("POST", "/v2/models/softmax/infer?shape=2,3&datatype=FP32", (), bytes(23)))


class Page:
    """A page under watch: what it asks for, and what the console says."""

    def __init__(self, browser, url, **options):
        self.said, self.asked = [], []
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.on("console", lambda line: self.said.append(line.text))
        self.page.on("pageerror", lambda fault: self.said.append(str(fault)))
        self.page.on("request", lambda asked: self.asked.append(asked.url))
        self.url = url

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()

    def drawn(self):
        self.comes("document.documentElement.dataset.clock || null")

    def comes(self, expression, seconds=20):
        """Until an expression is not null. Playwright's own waiting evaluates text, which the policy forbids."""
        end = time.monotonic() + seconds
        while self.page.evaluate(expression) is None:
            if time.monotonic() > end:
                check(False, "never", expression)
                return
            time.sleep(0.05)

    def quiet(self, what):
        check(self.said == [], what, "the console says", self.said[:3])
        foreign = [url for url in self.asked if not url.startswith(self.url + "/status") and not url.startswith("data:")]
        check(foreign == [], what, "asks for", foreign[:3])


def accessible(page, what):
    found = Axe().run(page).response["violations"]
    check(found == [], what, [(v["id"], v["nodes"][0]["html"][:200], v["nodes"][0].get("failureSummary", "")[:300]) for v in found][:4])


def looks(browser, url, keep):
    for scheme, width in (("light", 1280), ("dark", 1280), ("light", 390)):
        what = "%s-%d" % (scheme, width)
        with Page(browser, url, color_scheme=scheme, viewport={"width": width, "height": 900}) as p:
            p.page.goto(url + "/status")
            p.drawn()
            p.page.wait_for_timeout(1200)
            check(p.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), what, "is wider than its window")
            check(len(p.page.query_selector_all("#chart .bar")) > 0, what, "no bar in the timeline")
            check(len(p.page.query_selector_all("#roof .dot")) > 0, what, "no point in the roofline")
            check(p.page.query_selector("img") is None, what, "a client's name became an element")
            p.page.screenshot(path=os.path.join(keep, what + ".png"), full_page=True)
            p.page.click("#pause")
            accessible(p.page, what)
            p.quiet(what)


def axe_finds_a_fault(browser, url):
    with Page(browser, url) as p:
        p.page.goto(url + "/status")
        p.drawn()
        p.page.evaluate("document.querySelector('html').removeAttribute('lang')")
        check("html-has-lang" in [v["id"] for v in Axe().run(p.page).response["violations"]], "axe does not see a page without a language")


def without_script(browser, url, keep):
    for width in (1280, 390):
        with Page(browser, url, java_script_enabled=False, viewport={"width": width, "height": 900}) as p:
            p.page.goto(url + "/status")
            text = p.page.inner_text("main")
            for words in ("requests/s", "slot_bytes", "softmax FP32", "request-7", HOSTILE, "compute_d2h"):
                check(words in text, "without script there is no", words)
            p.page.screenshot(path=os.path.join(keep, "no-script-%d.png" % width), full_page=True)
            p.quiet("without script")


def expected(document):
    """What the tables have to say, from status.json."""
    phases = ("receive", "decode", "queue", "h2d", "compute", "d2h", "encode")
    known = lambda values: [v for v in values if v is not None]
    return {"limits": [[l["name"].replace("_", " ")] + known([l["now"], l["max_5m"], l["limit"]]) for l in document["limits"]],
            "refused": [[code, n] for code, n in document["refused_5m"].items()] + [["left in " + k, n] for k, n in document["aborted_5m"].items() if n],
            "resident": [[name.replace("_", " "), n] for name, n in document["resident"].items()],
            "plans": [[p["plan"]] + known([p["launches"], p["jobs"], p["graph_hits"], p["busy_us"], p["measured"]["us"], p["achieved"]["share"]]) for p in document["plans"]],
            "slow": [[s["request_id"], s["status"], s["total_us"]] + known([s["phases_us"][k] for k in phases] + [s["in_bytes"], s["out_bytes"]]) for s in document["slow"]]}


def with_figures(document):
    """Plans that have a point in the roofline."""
    return [p for p in document["plans"] if p["intensity"] is not None and p["achieved"]["tflops"] is not None]


def figures_agree(browser, url, remote):
    """The daemon rests, so that its tables stay."""
    with Page(browser, url) as p:
        p.page.goto(url + "/status")
        p.drawn()
        with p.page.expect_response(re.compile("status.json")) as response:
            pass
        document = response.value.json()
        p.comes("document.documentElement.dataset.clock === '%d' || null" % document["clock_ns"])
        for block, rows in expected(document).items():
            got = p.page.evaluate(FIGURES, block)
            check(got == rows, "drawn by script:", block, [pair for pair in zip(got, rows) if pair[0] != pair[1]][:2] or (len(got), len(rows)))
        dots = p.page.evaluate("[...document.querySelectorAll('#roof .dot')].map(d => d.getAttribute('aria-label').split(':')[0])")
        check(sorted(dots) == sorted(d["plan"] for d in with_figures(document)) and len(dots) > 3, "points of the roofline", dots)
        p.quiet("figures")
    with Page(browser, url, java_script_enabled=False) as p:
        for _ in range(5):  # a self-test of the daemon may come between page and document
            p.page.goto(url + "/status")
            document, other = json.loads(remote.get("/status.json").body), []
            for block, rows in expected(document).items():
                got = [[re.sub("_", " ", row[0]) if block in ("limits", "resident") else row[0]] + row[1:] for row in p.page.evaluate(FIGURES, block)]
                if got != rows:
                    other.append((block, [pair for pair in zip(got, rows) if pair[0] != pair[1]][:2] or (len(got), len(rows))))
            if not other:
                break
        check(not other, "written by the daemon:", other)
        ceilings = document["device"]["ceilings"]
        rows = [["copy", ceilings["copy_gbs"]]] + [list(pair) for pair in ceilings["tflops"].items()]
        got = p.page.evaluate(FIGURES, "roofline")
        check(got == rows and len(rows) > 1, "ceilings written by the daemon", got, rows)


def policy(browser, url, remote):
    answer = remote.get("/status")
    words = answer.header("content-security-policy") or ""
    for part in ("default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'", "img-src data:"):
        check(part in words, part, "is not in", words)
    check("unsafe" not in words and words.count("sha256-") == 2, words)
    check(answer.header("cache-control") == "no-store" and answer.header("content-type") == "text/html; charset=utf-8", answer.headers)
    check(len(answer.body) < 1 << 20, len(answer.body))
    with Page(browser, url) as p:
        p.page.goto(url + "/status")
        p.drawn()
        p.page.evaluate("() => { const s = document.createElement('script'); s.textContent = 'window.planted = 1'; document.body.append(s) }")
        check(p.page.evaluate("window.planted") is None and any("Content Security Policy" in s for s in p.said), "another script ran", p.said)


def keyboard(browser, url):
    with Page(browser, url, viewport={"width": 1280, "height": 900}) as p:
        p.page.goto(url + "/status")
        p.comes("document.querySelector('#chart .bar')?.getAttribute('d') || null")
        p.page.evaluate("document.querySelector('#chart .bar').focus()")
        cursor = "document.getElementById('cursor').getAttribute('x')"
        words, before = p.page.inner_text("#tip"), p.page.evaluate(cursor)
        check("softmax FP32" in words and "compute" in words, "a bar says", words)
        p.page.keyboard.press("ArrowLeft")
        check(float(p.page.evaluate(cursor)) < float(before), "the arrow goes nowhere", before, p.page.evaluate(cursor))
        p.page.wait_for_timeout(1300)
        check(p.page.evaluate("document.activeElement.classList.contains('bar')"), "a redraw took the focus")
        p.comes("document.querySelector('#roof .dot[tabindex=\"0\"]')")
        p.page.evaluate("document.querySelector('#roof .dot[tabindex=\"0\"]').focus()")
        words = p.page.inner_text("#what")
        check("bound" in words and "of the roofline" in words and "FLOP/s" in words, "a point says", words)
        moved = [p.page.keyboard.press(key) or p.page.inner_text("#what") for key in ("ArrowRight", "ArrowLeft", "ArrowLeft")]
        check(len({words, *moved}) > 1 and p.page.evaluate("document.activeElement.classList.contains('dot')"), "the arrow goes nowhere", words, moved)


def restart(browser, path, keep):
    data, admin = free_ports(2)
    options = ("--listen", "127.0.0.1:%d" % data, "--admin-listen", "127.0.0.1:%d" % admin)
    url = "http://127.0.0.1:%d" % admin
    with Page(browser, url) as p:
        with Daemon(path, *options):
            p.page.goto(url + "/status")
            p.drawn()
        p.comes("document.getElementById('stale').textContent || null")
        p.page.screenshot(path=os.path.join(keep, "away.png"))
        clock = p.page.evaluate("document.documentElement.dataset.clock")
        with Daemon(path, *options):
            p.comes("document.documentElement.dataset.clock !== '%s' && document.getElementById('stale').textContent === '' || null" % clock)


def busy_gpu(document):
    """What an eight-shard daemon on a GPU would say: 16 lanes whose engines overlap, 4,000 launches, 1,000 plans."""
    drawn, big = random.Random(3), json.loads(json.dumps(document))
    now, shapes = big["clock_ns"], ["matmul FP16 [%d,4096] [4096,%d]" % (64 * (1 + i), 128 * (1 + i % 7)) for i in range(1000)]
    big["device"].update(backend="cuda", name="A GPU", memory={"used": 31 << 30, "free": 110 << 30})
    t = big["timeline"]
    t["lanes"] = [{"shard": i // 2, "lane": i % 2} for i in range(16)]
    t["plans"], t["kept"], t["from_ns"], t["to_ns"] = shapes[:200], 123456, now - 2000000000, now
    t["launches"] = [[lane, drawn.randrange(200), drawn.choice((1, 1, 4, 32)), now - 2000000000 + k * 8000000 + drawn.randrange(1000000),
                      drawn.randrange(200000, 900000), drawn.randrange(300000, 5000000), drawn.randrange(100000, 700000), 2] for k in range(250) for lane in range(16)]
    t.update(observed_ns=2000000000, overlap_ratio=0.6834, busy_ns={"h2d": 1213000000, "compute": 1890000000, "d2h": 901000000, "any": 1980000000})
    t["overlap_ns"] = {"h2d_compute": 1100000000, "h2d_d2h": 700000000, "compute_d2h": 800000000, "all": 500000000, "any": 1353000000}
    for s in big["slow"]:
        s.update(request_id="a78d90d0e37fc65d", plan="matmul FP16 [1024,1024] [1024,1024]", in_bytes=4 << 20, out_bytes=2 << 20, total_us=72100.0,
                 phases_us=dict.fromkeys(s["phases_us"], 123.4))
    big["device"]["ceilings"] = {"copy_gbs": 4020.5, "tflops": {"FP16": 812.5, "BF16": 790.25, "FP32": 51.5, "FP64": 61.25}}
    like = big["plans"][0]
    big["plans"] = []
    for i, shape in enumerate(shapes):
        intensity, share, jobs = 2.0 ** drawn.uniform(-3, 11), drawn.uniform(0.05, 0.97), 4000 - 3 * i
        tflops = share * min(812.5, intensity * 4.0205)
        us = 10 ** drawn.uniform(0.5, 2.5)
        big["plans"].append(dict(like, plan=shape, kernel="wgmma_128x256_swap", path="copies", launches=1000 - i, jobs=jobs, graph_hits=999 - i, busy_us=us * jobs,
                                 intensity=intensity, bound=drawn.choice(("link", "launch")) if i % 5 == 0 else "compute" if intensity > 202 else "memory",
                                 measured={"of": "kernels", "runs": jobs, "us": us}, achieved={"gbs": tflops / intensity * 1e3, "tflops": tflops, "share": share}))
    big["plans"].sort(key=lambda p: -p["busy_us"])
    return big


def unknown_ceilings(browser, url, remote):
    """The roofline before anything is measured: one line, no plot; then it comes."""
    document = json.loads(remote.get("/status.json").body)
    early = json.loads(json.dumps(document))
    early["device"]["ceilings"] = {"copy_gbs": None, "tflops": {}}
    with Page(browser, url) as p:
        p.page.route("**/status.json", lambda route: route.fulfill(body=json.dumps(early), content_type="application/json"))
        p.page.goto(url + "/status")
        p.drawn()
        check("not known yet" in p.page.inner_text("#roofline") and p.page.query_selector("#roofline svg") is None, "before the ceilings", p.page.inner_text("#roofline"))
        early["device"]["ceilings"] = document["device"]["ceilings"]
        p.comes("document.querySelectorAll('#roof .dot').length === %d || null" % len(with_figures(document)))
        p.quiet("unknown ceilings")


class Spent:
    """Processor time of a page's script, style and layout, ms: other programs of the host are not counted."""

    def __init__(self, p):
        self.session = p.context.new_cdp_session(p.page)
        self.session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def ms(self):
        metrics = {m["name"]: m["value"] for m in self.session.send("Performance.getMetrics")["metrics"]}
        return 1e3 * sum(metrics[name] for name in ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration"))


def many_plans(browser, url, remote, keep):
    big, first, served = busy_gpu(json.loads(remote.get("/status.json").body)), [], [0]
    base, text = big["clock_ns"], json.dumps(big)
    clock = "Number(document.documentElement.dataset.clock) - %d" % base

    def serve(route):
        served[0] += 1000
        route.fulfill(body=text.replace('"clock_ns": %d' % base, '"clock_ns": %d' % (base + served[0])), content_type="application/json")

    for scheme in ("light", "dark"):
        with Page(browser, url, color_scheme=scheme, viewport={"width": 1280, "height": 900}) as p:
            p.page.route("**/status.json", serve)
            spent = Spent(p)
            for n in range(15):  # the least counts: where programs share caches, each takes more
                p.page.goto(url + "/status")
                begun = spent.ms()
                p.drawn()
                first.append(spent.ms() - begun)
                if n > 0 and min(first) < DRAW_MS:
                    break
            took, at = [], p.page.evaluate(clock)
            for _ in range(6):
                begun, was = spent.ms(), at
                p.comes("%s > %d || null" % (clock, was), 60)
                at = p.page.evaluate(clock)
                took.append((spent.ms() - begun) / (at - was) * 1000)
            print("1,000 plans, 4,000 launches: script, style and layout take %.0f ms at first, then %s; drawn in %s ms of wall time" % (
                first[-1], ["%.0f" % t for t in took], p.page.evaluate("document.documentElement.dataset.drawn")))
            check(min(took) < DRAW_MS, "1,000 plans take", took, "ms")
            check(p.page.evaluate("(e => e.scrollWidth <= e.clientWidth)(document.getElementById('slow'))"), "the slow requests are wider than the page")
            p.comes("document.querySelectorAll('#plans tbody tr').length === 1000 || null")
            p.page.screenshot(path=os.path.join(keep, "busy-%s.png" % scheme), full_page=True)
            p.quiet("many plans")
    check(min(first) < DRAW_MS, "1,000 plans take", first, "ms at first")


def saved(browser, folder, keep):
    """The page and the document that another host saved (tests/gpu/observed.py)."""
    with open(os.path.join(folder, "status.html")) as page, open(os.path.join(folder, "status.json")) as document:
        page, document = page.read(), document.read()
    for scheme in ("light", "dark"):
        with Page(browser, "http://127.0.0.1", color_scheme=scheme, viewport={"width": 1280, "height": 900}) as p:
            p.page.route("**/status", lambda route: route.fulfill(body=page, content_type="text/html; charset=utf-8"))
            p.page.route("**/status.json", lambda route: route.fulfill(body=document, content_type="application/json"))
            p.page.goto("http://127.0.0.1/status")
            p.drawn()
            p.page.wait_for_timeout(1200)
            p.page.screenshot(path=os.path.join(keep, "saved-%s.png" % scheme), full_page=True)
            p.quiet("saved")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--keep")
    parser.add_argument("--saved")
    arguments = parser.parse_args()
    program = shutil.which("chromium")
    if not program:
        print("chromium is not installed")
        return 77
    keep = arguments.keep or os.path.join(os.path.dirname(os.path.abspath(arguments.path)), "status-page")
    os.makedirs(keep, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        if arguments.saved:
            saved(browser, arguments.saved, keep)
            return 1 if wrongs() else 0
        with Daemon(arguments.path, "--backend", "cpu", "--threads", "2") as daemon:
            url, stop = "http://127.0.0.1:%d" % daemon.admin_port, threading.Event()
            remote = Remote(url)
            with daemon.connect() as connection:  # among the slowest, whatever the load beside
                for name in NAMES:
                    connection.ask(infer(4000, 4000, name))
            loaders = [threading.Thread(target=load, args=(daemon, stop)) for _ in range(2)]
            for thread in loaders:
                thread.start()
            try:
                looks(browser, url, keep)
                without_script(browser, url, keep)
                keyboard(browser, url)
            finally:
                stop.set()
                for thread in loaders:
                    thread.join()
            axe_finds_a_fault(browser, url)
            policy(browser, url, remote)
            unknown_ceilings(browser, url, remote)
            many_plans(browser, url, remote, keep)
            time.sleep(0.3)
            figures_agree(browser, url, remote)
        restart(browser, arguments.path, keep)
        browser.close()
    print("%d wrong; screenshots: %s" % (wrongs(), keep))
    return 1 if wrongs() else 0


if __name__ == "__main__":
    sys.exit(main())
