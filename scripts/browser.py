"""Chromium without a window, by its own protocol."""

import base64
import contextlib
import itertools
import json
import os
import subprocess
import tempfile
import time
import urllib.request

import websocket


class Page:
    """A page that is open."""

    def __init__(self, address, timeout_s):
        self._socket = websocket.create_connection(address, timeout=timeout_s, suppress_origin=True)
        self._numbers = itertools.count(1)
        self.console = []
        for part in ["Runtime", "Log", "Page"]:
            self.ask(f"{part}.enable")

    def ask(self, method, **parameters):
        """Asks the browser, and returns what it answers."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            said = json.loads(self._socket.recv())
            if said.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
                self.console.append(said["params"])
            if said.get("id") == number:
                assert "error" not in said, said
                return said["result"]

    def value(self, expression):
        """What an expression of JavaScript is there."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def click(self, selector):
        """Presses the mouse's button on an element, as a user does."""
        place = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
        x, y = self.value(f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])({place})")
        for kind in ["mousePressed", "mouseReleased"]:
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def picture(self, file, width, height):
        """Saves what the page looks like."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        time.sleep(1)  # It is drawn anew.
        with open(file, "wb") as to:
            to.write(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))


class Browser:
    def __init__(self, port, timeout_s):
        self._base, self._timeout_s = f"http://127.0.0.1:{port}/json", timeout_s

    def _fetched(self, path, method="GET"):
        with urllib.request.urlopen(urllib.request.Request(self._base + path, method=method), timeout=self._timeout_s) as answer:
            return json.load(answer)

    def open(self, address):
        """Opens a page."""
        return Page(self._fetched(f"/new?{address}", "PUT")["webSocketDebuggerUrl"], self._timeout_s)

    def find(self, address):
        """The page that was opened with an address that begins so, if there is one."""
        found = [of for of in self._fetched("/list") if of["type"] == "page" and of["url"].startswith(address)]
        return Page(found[0]["webSocketDebuggerUrl"], self._timeout_s) if found else None


@contextlib.contextmanager
def browser(timeout_s):
    """Chromium, which is ended in the end."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
        command += ["--remote-debugging-port=0", f"--user-data-dir={profile}", "--window-size=1100,830", "about:blank"]
        program = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            said, end = f"{profile}/DevToolsActivePort", time.monotonic() + timeout_s
            while not (os.path.exists(said) and os.path.getsize(said)):
                assert program.poll() is None and time.monotonic() < end, "Chromium does not start"
                time.sleep(0.05)
            with open(said, encoding="utf-8") as file:
                yield Browser(int(file.readline()), timeout_s)
        finally:
            program.kill()
            program.wait()
