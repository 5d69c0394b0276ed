"""A headless Chromium driven over a pipe: enough to look at a page, click in it, photograph it."""

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

CHROMIUM = next(
    (
        found
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (found := shutil.which(name))
    ),
    None,
)


class Browser:
    """One page of a browser of its own."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM
        to_us, theirs_out = os.pipe()
        theirs_in, to_them = os.pipe()
        self._to, self._from, self._number, self._rest = to_them, to_us, 0, b""

        def places() -> None:  # the browser reads from 3 and writes to 4
            a, b = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self._process = subprocess.Popen(
            [
                *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
                *("--disable-dev-shm-usage", "--remote-debugging-pipe"),
                *("--disable-background-networking", f"--user-data-dir={profile}", "about:blank"),
            ],
            preexec_fn=places,  # noqa: PLW1509 - there is no other way to fixed numbers
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.events: list[dict[str, Any]] = []
        self._session = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._to)  # it ends with its pipe
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._from)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._read()
            if reply.get("id") == self._number:
                assert "error" not in reply, reply
                return reply["result"]
            self.events.append(reply)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._from, 1 << 20)
            assert piece, "the browser has gone"
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\0")
        return json.loads(line)

    def open(self, path: Path, *, width: int = 1280, dark: bool = False) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.events.clear()
        self.send("Page.navigate", url=path.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def key(self, key: str, code: int) -> None:
        for kind in ("keyDown", "keyUp"):
            self.send(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                windowsVirtualKeyCode=code,
                **({"text": "\r"} if key == "Enter" and kind == "keyDown" else {}),
            )

    def shot(self, into: Path, *, top: int = 0, height: int | None = None) -> None:
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {
            "x": 0,
            "y": top,
            "width": size["width"],
            "height": min(height or size["height"], size["height"] - top),
            "scale": 1,
        }
        data = self.send("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"]
        into.write_bytes(base64.b64decode(data))
