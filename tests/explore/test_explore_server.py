"""The server with a real client: answers, limits, access control."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

pytest.importorskip("plotly")
httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")

from starlette.requests import Request  # noqa: E402

from arbora.app.filing import Filer  # noqa: E402
from arbora.app.folder import open_folder  # noqa: E402
from arbora.explore.guard import JsonLines  # noqa: E402
from arbora.explore.server import Handlers, Limits, make_app, serve  # noqa: E402
from support.explore_folders import SUBJECTS  # noqa: E402
from support.serving import started, trained_folder  # noqa: E402
from support.topic_folders import topics_folder  # noqa: E402

JSON = {"content-type": "application/json"}
TOKEN = "a secret of the test"
LIMITS = Limits(document=2000, batch=20_000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return open_folder(trained_folder(tmp_path_factory.mktemp("served") / "model"))


@pytest.fixture(scope="module")
def address(folder):
    with started(make_app([folder], limits=LIMITS)) as url:
        yield url


@pytest.fixture(scope="module")
def guarded(folder):
    with started(make_app([folder], token=TOKEN, limits=LIMITS)) as url:
        yield url


def ask(url, text, **options):
    return httpx.post(f"{url}/api/file", json={"model": 0, "text": text}, timeout=30, **options)


def test_a_document_gets_its_path_its_words_and_its_neighbours(address):
    answer = ask(address, "the laser and the lens, photon and mirror").json()
    assert answer["label"] == "science/physics/optics"
    names, probabilities = zip(*answer["path"], strict=True)
    assert names == ("all", "science", "science/physics", "science/physics/optics")
    assert list(probabilities) == sorted(probabilities, reverse=True)
    assert {word for word, _ in answer["words"]} == {"laser", "lens", "photon", "mirror"}
    assert answer["nearest"][0][0] == answer["label"]


def test_two_hundred_requests_at_once(address):
    subjects = list(SUBJECTS.items())
    wanted = [subjects[i % len(subjects)] for i in range(200)]

    async def all_at_once():
        async with httpx.AsyncClient(
            base_url=address, limits=httpx.Limits(max_connections=200), timeout=60
        ) as client:
            return await asyncio.gather(
                *(client.post("/api/file", json={"text": words}) for _, words in wanted)
            )

    answers = asyncio.run(all_at_once())
    assert [answer.status_code for answer in answers] == [200] * 200
    assert [answer.json()["label"] for answer in answers] == [label for label, _ in wanted]
    assert httpx.get(f"{address}/health").json() == {"status": "ok"}


def test_a_batch_keeps_its_order_and_reports_broken_lines(address):
    lines = [
        '{"id": "a", "text": "cargo port container"}',
        "",
        '{"text": "violin concert"}',
        "{broken",
        '{"body": 1}',
        '{"text": "qqqq zzzz"}',
    ]
    reply = httpx.post(
        f"{address}/api/batch?model=0",
        content="\n".join(lines),
        headers={"content-type": "application/x-ndjson"},
    )
    answers = [json.loads(line) for line in reply.text.splitlines()]
    assert [answer["id"] for answer in answers] == ["a", "3", "4", "5", "6"]
    assert [answer.get("label") for answer in answers[:2]] == ["trade/shipping", "arts/music"]
    assert "not JSON" in answers[2]["error"]
    assert "'text' is needed" in answers[3]["error"]
    assert "none of its words" in answers[4]["note"]


@pytest.mark.parametrize(
    ("path", "limit", "kind"),
    [("api/file", LIMITS.document, "application/json"), ("api/batch", LIMITS.batch, "application/x-ndjson")],
)
def test_a_body_that_is_too_large_is_refused_however_it_is_sent(address, path, limit, kind):
    body = b"x" * (limit + 1)
    told = httpx.post(f"{address}/{path}", content=body, headers={"content-type": kind})
    assert told.status_code == 413
    assert f"{limit:,} bytes" in told.json()["error"]
    # Sent in chunks the length is not told beforehand.
    chunked = httpx.post(
        f"{address}/{path}",
        content=(body[i : i + 500] for i in range(0, len(body), 500)),
        headers={"content-type": kind},
    )
    assert chunked.status_code == 413


@pytest.mark.parametrize(
    ("body", "kind", "status", "says"),
    [
        (b"{broken", "application/json", 400, "not JSON"),
        (b"\xff\xfe", "application/json", 400, "not JSON"),
        (b"[" * 1500, "application/json", 400, "not JSON"),
        (b"[1]", "application/json", 400, "'text' is needed"),
        (b'{"text": 7}', "application/json", 400, "'text' is needed"),
        (b'{"text": "a", "model": 9}', "application/json", 404, "no model 9"),
        (b'{"text": "a", "model": "../x"}', "application/json", 404, "no model"),
        (b'{"text": "a", "model": true}', "application/json", 404, "no model"),
        (b'{"text": "a"}', "text/plain", 415, "send application/json"),
        (b"text=a", "application/x-www-form-urlencoded", 415, "send application/json"),
    ],
)
def test_malformed_requests_are_refused_with_a_reason(address, body, kind, status, says):
    reply = httpx.post(f"{address}/api/file", content=body, headers={"content-type": kind})
    assert reply.status_code == status
    assert says in reply.json()["error"]


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/..%2f..%2fetc/passwd",
        "/static/../folder.json",
        "//etc/passwd",
    ],
)
def test_no_path_leads_to_a_file(address, path):
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as raw:  # clients tidy paths up; this one does not
        raw.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        reply = b"".join(iter(lambda: raw.recv(65536), b""))
    assert b" 404 " in reply.split(b"\r\n")[0]
    assert b"root:" not in reply


def test_a_page_of_another_origin_is_refused(address):
    assert ask(address, "a", headers={"host": "evil.example:80"}).status_code == 400
    assert httpx.get(address, headers={"host": "evil.example"}).status_code == 400
    reply = httpx.options(f"{address}/api/file", headers={"origin": "http://evil.example"})
    assert "access-control-allow-origin" not in reply.headers


def test_the_page_is_served_with_its_policy(address):
    reply = httpx.get(address)
    assert reply.status_code == 200
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert "frame-ancestors 'none'" in reply.headers["content-security-policy"]
    assert "connect-src 'self'" in reply.text[:2000]


def test_a_missing_or_wrong_token_is_refused(guarded):
    assert httpx.get(guarded).status_code == 401
    assert ask(guarded, "a").status_code == 401
    assert ask(guarded, "a", headers={"authorization": "Bearer wrong"}).status_code == 401
    assert ask(guarded, "a", cookies={"arbora_token": "wrong"}).status_code == 401
    assert httpx.get(f"{guarded}/?token=wrong").status_code == 401
    assert httpx.post(f"{guarded}/api/file?token={TOKEN}", json={"text": "a"}).status_code == 401
    assert httpx.get(f"{guarded}/health").status_code == 200


def test_the_right_token_is_accepted_and_stored(guarded):
    assert (
        ask(guarded, "cargo port", headers={"authorization": f"Bearer {TOKEN}"}).json()["label"]
        == "trade/shipping"
    )
    with httpx.Client(base_url=guarded) as browser:
        first = browser.get("/", params={"token": TOKEN})
        assert first.status_code == 303
        cookie = first.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert browser.get("/").status_code == 200
        assert browser.post("/api/file", json={"text": "cargo port"}).status_code == 200


def test_an_invalid_model_number_is_refused(address):
    for number in ("9" * 5000, "-1", "²", "../x", ""):
        reply = httpx.post(
            f"{address}/api/batch", params={"model": number}, headers={"content-type": "application/jsonl"}
        )
        assert reply.status_code == 404, number[:10]
        assert "no model" in reply.json()["error"]


def test_the_command_serves_until_ctrl_c(folder):
    # Test runners that were started in the background ignore Ctrl-C, and so would their children.
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from arbora.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    command = ["explore", str(folder.path), "--serve", "--port", "0", "--token", "a&b=c", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", program, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    watchdog = threading.Timer(200, process.kill)
    watchdog.start()
    try:
        url = json.loads(process.stdout.readline())["address"]
        reply = httpx.get(url, follow_redirects=True, timeout=60)
        assert (reply.status_code, "<!doctype html>" in reply.text) == (200, True)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        watchdog.cancel()
        process.kill()
    assert (process.returncode, out, err) == (0, "", "")


def test_an_open_address_needs_a_token(folder):
    with pytest.raises(ValueError, match=r"other machines can reach 0\.0\.0\.0"):
        serve([folder], host="0.0.0.0")


def test_a_port_in_use_is_reported(folder):
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ValueError, match="give another port"),
    ):
        serve([folder], port=taken.getsockname()[1])


def raw_request(address, lines, wait=5.0):
    """Send bytes as they are, and return the reply until the server closes the connection."""
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=wait) as raw:
        raw.sendall(lines)
        return b"".join(iter(lambda: raw.recv(65536), b""))


@pytest.mark.parametrize(
    "host",
    [
        b"Host: localhost:evil",
        b"Host: localhost:80:90",
        b"Host: localhost:99999",
        b"Host: [::1]evil.example",
        b"Host: user@localhost",
        b"Host: localhost/path",
        b"Host: ",
        b"Host: 0.0.0.0",
        b"Host: 2130706433",
    ],
)
def test_an_odd_host_is_refused(address, host):
    reply = raw_request(address, b"GET /health HTTP/1.1\r\n" + host + b"\r\nConnection: close\r\n\r\n")
    assert b" 400 " in reply.split(b"\r\n")[0]


def test_small_packets_are_sent_at_once(address):
    host, port = address.removeprefix("http://").split(":")
    request = f"GET /health HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
    with socket.create_connection((host, int(port))) as raw:
        times = []
        for _ in range(30):
            start = time.perf_counter()
            raw.sendall(request)
            reply = b""
            while not reply.endswith(b'{"status":"ok"}'):
                reply += raw.recv(65536)
            times.append(time.perf_counter() - start)
    assert sorted(times)[15] < 0.03  # a delayed acknowledgement takes 0.04 s


def post_head(length, rest=b""):
    head = b"POST /api/file HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return head + rest + b"Content-Length: %d\r\n\r\n" % length


def trickle(raw):
    for _ in range(100):
        raw.sendall(b"x")
        time.sleep(0.05)


SLOW = Limits(header_seconds=0.3, idle_seconds=0.3, request_seconds=0.6)


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET /health HTTP/1.1\r\nHost: local",
        b"POST /api/file HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b'Content-Length: 99\r\n\r\n{"text":',
    ],
    ids=["silent", "half a head", "half a body"],
)
def test_a_slow_client_is_disconnected(folder, begun, caplog):
    caplog.set_level("INFO", "arbora.server")
    with started(make_app([folder], limits=SLOW), SLOW) as url:
        try:
            reply = raw_request(url, begun)
        except ConnectionResetError:
            reply = b""
    assert reply == b""
    assert [record.message for record in caplog.records].count("timed out") == 1


def test_a_client_that_sends_a_byte_now_and_then_is_disconnected(folder):
    with started(make_app([folder], limits=SLOW), SLOW) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=5) as raw:
            raw.sendall(post_head(999))
            with pytest.raises((BrokenPipeError, ConnectionResetError)):
                trickle(raw)


def test_a_disconnected_client_leaves_one_quiet_line(folder, caplog):
    caplog.set_level("INFO")
    with started(make_app([folder])) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as raw:
            raw.sendall(post_head(99))
            time.sleep(0.2)
        for _ in range(50):
            records = [r for r in caplog.records if r.name == "arbora.server" or r.levelname != "INFO"]
            if records:
                break
            time.sleep(0.05)
        assert httpx.get(f"{url}/health").status_code == 200
    assert [record.message for record in records] == ["disconnected"]
    assert records[0].exc_info is None
    assert json.loads(JsonLines().format(records[0]))["path"] == "/api/file"


def test_a_request_whose_body_is_not_http_leaves_one_quiet_line(folder, caplog):
    caplog.set_level("INFO")
    with started(make_app([folder])) as url:
        head = b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert raw_request(url, head + b"not a chunk\r\n").startswith(b"HTTP/1.1 400 ")
        assert httpx.get(f"{url}/health").status_code == 200
    messages = [record.message for record in caplog.records if record.name == "arbora.server"]
    assert "disconnected" in messages
    assert not [record for record in caplog.records if record.exc_info]


def test_the_number_of_lines_of_a_batch_is_limited(folder):
    limits = Limits(lines=10)
    lines = {"content-type": "application/x-ndjson"}
    with started(make_app([folder], limits=limits)) as url:
        for body, status in ((b"\n" * 10, 200), (b"\n" * 11, 413)):
            reply = httpx.post(f"{url}/api/batch", content=body, headers=lines)
            assert reply.status_code == status
        assert "limit lines" in reply.json()["error"]


def test_too_many_requests_and_batches_are_refused_for_now(folder):
    with started(make_app([folder], limits=Limits(rate=2))) as url:
        with httpx.Client() as client:  # one connection: six within a second, also on a busy machine
            replies = [client.get(f"{url}/health") for _ in range(6)]
        assert [reply.status_code for reply in replies] == [200] * 4 + [429] * 2
        assert replies[-1].headers["retry-after"] == "1"
    with started(make_app([folder], limits=Limits(waiting=0, batches=0))) as url:
        assert ask(url, "cargo port").status_code == 503
        reply = httpx.post(f"{url}/api/batch", headers={"content-type": "application/x-ndjson"})
        assert (reply.status_code, "limit batches" in reply.json()["error"]) == (503, True)


def test_a_stopping_server_answers_what_it_has_begun(folder, monkeypatch):
    answer = Filer.file_texts
    monkeypatch.setattr(Filer, "file_texts", lambda self, texts: (time.sleep(0.5), answer(self, texts))[1])
    body = b'{"text": "cargo port"}'
    request = post_head(len(body), b"Connection: close\r\n") + body
    with started(make_app([folder])) as url:
        host, port = url.removeprefix("http://").split(":")
        opened = [socket.create_connection((host, int(port)), timeout=30) for _ in range(40)]
        for raw in opened:
            raw.sendall(request)
        time.sleep(0.3)
    for raw in opened:
        with raw:
            assert b" 200 " in b"".join(iter(lambda: raw.recv(65536), b"")).split(b"\r\n")[0]  # noqa: B023


def test_edits_need_a_token_and_the_page_of_the_server(tmp_path):
    path = topics_folder(tmp_path / "topics", n=10)
    body = {"model": 0, "edits": [{"edit": "merge", "topics": [0, 1]}]}
    with started(make_app([path])) as url:
        assert httpx.post(f"{url}/api/edits", json=body).status_code == 403
    with started(make_app([path], token=TOKEN)) as url:
        assert httpx.post(f"{url}/api/edits", json=body).status_code == 401
        headers = {"authorization": f"Bearer {TOKEN}"}
        for origin in (
            {"origin": "http://evil.example"},
            {"origin": "null"},
            {"sec-fetch-site": "cross-site"},
        ):
            assert httpx.post(f"{url}/api/edits", json=body, headers=headers | origin).status_code == 403
            assert (
                httpx.post(f"{url}/api/file", json={"text": "fish"}, headers=headers | origin).status_code
                == 403
            )
        reply = httpx.post(f"{url}/api/edits", json=body, headers=headers | {"origin": url}, timeout=30)
        assert len(reply.json()["data"]["nodes"]["name"]) == 4
        assert reply.json()["saved"] is False
        wrong = httpx.post(
            f"{url}/api/edits", json={"edits": [{"edit": "burn"}]}, headers=headers, timeout=30
        )
        assert wrong.status_code == 409
        assert "edit 1" in wrong.json()["error"]
        assert httpx.post(f"{url}/api/edits", json={"edits": {}}, headers=headers).status_code == 400
        assert httpx.post(f"{url}/api/edits", content="{", headers=headers | JSON).status_code == 400
    assert len(open_folder(path).nodes) == 5  # nothing was saved


def test_a_save_frees_the_model_that_was_served_before(tmp_path):
    handlers = Handlers([open_folder(topics_folder(tmp_path / "topics", n=10))], Limits(), may_edit=True)
    body = json.dumps({"edits": [{"edit": "rename", "topic": 0, "title": "first"}], "save": True}).encode()

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", b"application/json")]}
    for _ in range(2):
        assert asyncio.run(handlers.edit(Request(scope, receive))).status_code == 200
    assert list(handlers.batches) == handlers.filers
    # A page that is opened now sends the saved edits again: they are replayed from the start of the server.
    assert '"edits":[[{"edit":"rename","topic":0,"title":"first"}]]' in handlers.page.decode()


def test_a_page_does_not_overwrite_what_another_page_has_saved(tmp_path):
    path = topics_folder(tmp_path / "topics", n=10)
    headers = {"authorization": f"Bearer {TOKEN}"}
    first, second = ([{"edit": "rename", "topic": 0, "title": title}] for title in ("one", "two"))
    with started(make_app([path], token=TOKEN)) as url:

        def save(edits, after):
            body = {"edits": edits, "save": True, "after": after}
            return httpx.post(f"{url}/api/edits", json=body, headers=headers, timeout=30)

        assert save(first, []).status_code == 200
        late = save(second, [])  # of a page that was opened before the save
        assert late.status_code == 409
        assert "reload" in late.json()["error"]
        assert save(first + second, first).status_code == 200


def test_a_classifier_has_no_topics_to_edit(folder):
    with started(make_app([folder], token=TOKEN)) as url:
        reply = httpx.post(
            f"{url}/api/edits", json={"edits": []}, headers={"authorization": f"Bearer {TOKEN}"}, timeout=30
        )
        assert reply.status_code == 409
        assert "not a topic model" in reply.json()["error"]
