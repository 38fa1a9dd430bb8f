"""A page in a browser."""

QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
WAIT = 120_000
"""Milliseconds; a busy machine starts a browser slowly."""


class Opened:
    """A page, with what it complained of and asked for."""

    def __init__(self, browser, address, width, **settings):
        self.page = browser.new_context(viewport={"width": width, "height": 900}, **settings).new_page()
        self.page.set_default_timeout(WAIT)
        self.problems, self.requests = [], []
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)
