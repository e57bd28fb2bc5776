"""Many requests to the server of Arbora, and to plain uvicorn with scikit-learn: latency and memory."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

CONNECTIONS = 8
_FEWER = 10  # the plain server is slower: it gets a tenth of the requests
TRAIN = """
import sys
from pathlib import Path
from support.serving import trained_folder
trained_folder(Path(sys.argv[1]))
"""
PLAIN = """
import sys, json, socket, uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from sklearn.calibration import CalibratedClassifierCV
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
rows = json.load(open(sys.argv[1]))
model = make_pipeline(TfidfVectorizer(sublinear_tf=True), CalibratedClassifierCV(LinearSVC(), cv=3, ensemble=False))
model.fit([row["text"] for row in rows], [row["label"] for row in rows])
async def file(request):
    text = (await request.json())["text"]
    proba = model.predict_proba([text])[0]
    return JSONResponse({"label": model.classes_[proba.argmax()], "probability": float(proba.max())})
class Server(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets)
        print(json.dumps({"address": f"http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}/"}), flush=True)
app = Starlette(routes=[Route("/api/file", file, methods=["POST"])])
Server(uvicorn.Config(app, port=0, log_level="warning")).run()
"""


def memory_of(process: int) -> float:
    """Resident memory of a process in MB."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    return int(found[1]) / 1024 if found else float("nan")


def processor_seconds(process: int) -> float:
    """Time that a process has computed so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _connection(address: str, bodies: list[bytes], turns: list[int], times: list[float]) -> int:
    """Send requests over one connection, one after the other; return how many failed."""
    url = urlsplit(address)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    failed = 0
    token = "".join(f"Authorization: Bearer {one}\r\n" for one in parse_qs(url.query).get("token", []))
    head = f"POST /api/file HTTP/1.1\r\nHost: {url.netloc}\r\n{token}"
    head += "Content-Type: application/json\r\nContent-Length: "
    while turns:
        body = bodies[turns.pop() % len(bodies)]
        begun = time.perf_counter()
        writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", answer.lower())
        await reader.readexactly(int(length[1]) if length else 0)
        times.append(time.perf_counter() - begun)
        failed += b" 200 " not in answer[:20]
    writer.close()
    return failed


async def _drive(
    address: str, process: int, bodies: list[bytes], n: int, longest: float
) -> tuple[list[float], int, list[float]]:
    turns, times, memory = list(range(n)), list[float](), list[float]()

    async def watch() -> None:
        while turns:
            memory.append(memory_of(process))
            await asyncio.sleep(0.25)

    async def limit() -> None:
        deadline = time.monotonic() + longest
        while turns and time.monotonic() < deadline:
            await asyncio.sleep(1)
        turns.clear()

    jobs = [_connection(address, bodies, turns, times) for _ in range(CONNECTIONS)]
    watching = [asyncio.create_task(watch()), asyncio.create_task(limit())]
    failed = sum(await asyncio.gather(*jobs))
    for task in watching:
        await task
    return times, failed, memory


def _measure(name: str, command: list[str], bodies: list[bytes], n: int, longest: float) -> dict[str, Any]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["address"]
        asyncio.run(_drive(address, process.pid, bodies, 200, longest))  # compile, and fill caches
        begun, computed = time.perf_counter(), processor_seconds(process.pid)
        times, failed, memory = asyncio.run(_drive(address, process.pid, bodies, n, longest))
        seconds = time.perf_counter() - begun
        computed = processor_seconds(process.pid) - computed
    finally:
        process.terminate()
        process.wait(60)
    spread = [float(1000 * value) for value in np.percentile(times, [50, 99, 100])]
    found = {
        "name": name,
        "requests": len(times),
        "connections": CONNECTIONS,
        "per_second": len(times) / seconds,
        "computed": 1000 * computed / len(times),
    }
    found |= {"median": spread[0], "p99": spread[1], "longest": spread[2], "failed": failed}
    found |= {"early": float(np.max(memory[: max(1, len(memory) // 10)])), "late": float(np.max(memory[-3:]))}
    print(found, flush=True)
    return found


def soak(n: int, longest: float) -> list[dict[str, Any]]:
    """Send n requests to the server of Arbora, for at most so many seconds, then a tenth as many to the plain one."""
    from arbora.app.folder import open_folder
    from support.serving import trained_folder

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = trained_folder(folder / "model")
        rows = [{"text": d["text"], "label": d["label"]} for d in open_folder(path).documents]
        (folder / "rows.json").write_text(json.dumps(rows))
        bodies = [json.dumps({"text": row["text"]}).encode() for row in rows]
        ours = [sys.executable, "-m", "arbora", "explore", str(path), "--serve", "--port", "0", "--json"]
        plain = [sys.executable, "-c", PLAIN, str(folder / "rows.json")]
        first = _measure("Arbora", ours, bodies, n, longest)
        return [first, _measure("uvicorn and scikit-learn", plain, bodies, n // _FEWER, longest)]


def keep_alive(checkouts: dict[str, Path], turns: int = 2, n: int = 150) -> dict[str, dict[str, float]]:
    """Milliseconds of a request over one open connection, for each checkout, in turns.

    Each checkout serves a model that it trained itself.
    """
    times: dict[str, list[float]] = {name: [] for name in checkouts}
    with tempfile.TemporaryDirectory() as name:
        for turn in range(turns):
            for which, checkout in checkouts.items():
                paths = os.pathsep.join((str(checkout / "src"), str(checkout / "tests")))
                environment = {**os.environ, "PYTHONPATH": paths}
                path = Path(name) / f"{which}{turn}"
                subprocess.run([sys.executable, "-c", TRAIN, str(path)], env=environment, check=True)
                serve = ["explore", str(path), "--serve", "--port", "0", "--json"]
                process = subprocess.Popen(
                    [sys.executable, "-m", "arbora", *serve],
                    stdout=subprocess.PIPE,
                    text=True,
                    env=environment,
                )
                try:
                    assert process.stdout is not None
                    address = json.loads(process.stdout.readline())["address"]
                    found: list[float] = []
                    body = b'{"text": "cargo port"}'
                    asyncio.run(_connection(address, [body], list(range(n)), found))
                    times[which] += found[n // 10 :]
                finally:
                    process.terminate()
                    process.wait(60)
    spread = {
        name: [float(1000 * value) for value in np.percentile(found, [0, 50])]
        for name, found in times.items()
    }
    return {name: {"shortest": low, "median": middle} for name, (low, middle) in spread.items()}
