"""Answers with the book's `answerer.json5` and asks with its `rank.json5`, and with what must not be answered."""

import re
import socket
import sys
import time

import zenoh

PAGE, FOLDER = sys.argv[1:]
SERVICE = "hostcall/train-7/features"
ASKERS = f"{SERVICE}/-askers-"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


TLS, TCP = free_port(), free_port()


def of_book(name: str) -> str:
    """A file of the page, with this run's certificates and place."""
    found = re.search(rf"```text\n// {name}\n(.*?)```", open(PAGE).read(), re.S)
    assert found, f"{PAGE} has no {name}"
    text = found[1].replace("/etc/hostcall", FOLDER)
    return re.sub(r"tls/[a-z0-9.]+:7447", f"tls/127.0.0.1:{TLS}", text)


def open_session(text: str, **settings: str) -> zenoh.Session:
    config = zenoh.Config.from_json5(text)
    config.insert_json5("scouting/multicast/enabled", "false")
    for path, value in settings.items():
        config.insert_json5(path.replace("__", "/"), value)
    return zenoh.open(config)


answerer = of_book("answerer.json5").replace(f'"tls/127.0.0.1:{TLS}"', f'"tls/127.0.0.1:{TLS}", "tcp/127.0.0.1:{TCP}"')
answers = open_session(answerer)
gone = []
queryables = [
    answers.declare_queryable(f"{service}/**", lambda query: query.reply(query.key_expr, b"found"))
    for service in (SERVICE, "hostcall/train-7/other")
]
alive = answers.liveliness().declare_subscriber(f"{ASKERS}/*", lambda sample: gone.append(sample))

rank = of_book("rank.json5")
plain = '{ mode: "peer", connect: { endpoints: ["tcp/127.0.0.1:%d"] } }'
CASES = [
    ("the rank", rank, SERVICE, True),
    ("the rank, another service", rank, "hostcall/train-7/other", False),
    ("a certificate with another name", rank.replace("/rank.", "/other-name."), SERVICE, False),
    ("a certificate of another authority", rank.replace("/rank.", "/stranger."), SERVICE, False),
    ("no certificate", re.sub(r"connect_(certificate|private_key):.*|enable_mtls: true,", "", rank), SERVICE, False),
    ("no TLS", plain % TLS, SERVICE, False),
    ("no TLS, at an address without", plain % TCP, SERVICE, False),
]
failed = 0
for what, text, service, is_answered in CASES:
    connect = {"connect__timeout_ms": "2000", "connect__exit_on_failure": "false", "listen__endpoints": "[]"}
    session = open_session(text, **connect)
    token = session.liveliness().declare_token(f"{ASKERS}/1f")
    # A link may take a moment; who must not be answered is asked for as long.
    until = time.monotonic() + 3
    replies: list[bytes] = []
    while not replies and time.monotonic() < until:
        replies = [reply.ok.payload.to_bytes() for reply in session.get(f"{service}/Features/of", timeout=1) if reply.ok]
        time.sleep(0.05)
    before = len(gone)
    session.close()
    time.sleep(0.5)
    told = len(gone) - before
    right = bool(replies) == is_answered and (told > 0) == (what.startswith("the rank"))
    failed += not right
    print(f"{'ok' if right else 'WRONG'}: {what}: {'answered' if replies else 'not answered'}, its end was told {told} times")
answers.close()
sys.exit(f"{failed} are wrong" if failed else 0)
