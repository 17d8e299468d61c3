"""The coordinator's one port: who gets in, and what becomes of who does not, over real TLS in this process."""

import asyncio
import json
import socket
import ssl
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")

import deployed
from deployed import free_ports, living, wait

from agnosticfair.data.files import Roles
from agnosticfair.deploy import admin, door, node
from agnosticfair.deploy.door import Door
from agnosticfair.deploy.folder import Federation, read_settings, write_folder
from agnosticfair.deploy.frames import LENGTHS, frame, site_tls
from agnosticfair.deploy.node import cause, load_key, read_site
from agnosticfair.deploy.secrets import tls_files
from agnosticfair.errors import FederationError, SettingsError

HELLO = {"id": "1", "step": "hello", "round": 0, "content": b""}


@pytest.fixture
def folder(tmp_path):
    sites = {key: tmp_path / f"{key}.csv" for key in ("north", "south")}
    plan = Federation(sites, Roles("y", ("sex",)), {"method": "fl"}, port=free_ports(1))
    write_folder(tmp_path / "bank", plan)
    return tmp_path / "bank"


@contextmanager
def opened(folder):
    with Door(read_settings(folder), "7") as made:
        yield made


def connected(folder, key=None, authority=None, name="north"):
    """A TLS connection as a site has it, with its first frame read."""
    joined = read_site(folder / "sites" / f"{name}.toml")
    tls = site_tls(authority or joined.tls_authority, key or joined.key)
    link = tls.wrap_socket(plain(joined), server_hostname=joined.host)
    LINKS.append(link)
    return link, read(link)


LINKS = []


def plain(at):
    """A bare connection to a place's host and port."""
    LINKS.append(socket.create_connection((at.host, at.port), timeout=20))
    return LINKS[-1]


@pytest.fixture(autouse=True)
def _closed():
    yield
    for link in LINKS:
        link.close()
    LINKS.clear()


def shaken(tls, raw, host):
    """A first byte over TLS."""
    LINKS.append(tls.wrap_socket(raw, server_hostname=host, do_handshake_on_connect=False))
    LINKS[-1].do_handshake()
    return exactly(LINKS[-1], 1)


def read(link):
    sizes = LENGTHS.unpack(exactly(link, LENGTHS.size))
    head, body = (exactly(link, size) for size in sizes)
    return {**json.loads(head), **({"content": body} if body else {})}


def exactly(link, size):
    data = b""
    while len(data) < size:
        data += (chunk := link.recv(size - len(data)))
        if not chunk:
            raise ConnectionResetError
    return data


def gone(link):
    """Whether the other side ends a connection, beats aside."""
    with suppress(OSError):
        while link.recv(65536):
            pass
    return True


def events(folder):
    lines = (folder / "state" / "north.log").read_text().splitlines()
    return [json.loads(line)["event"] for line in lines]


def test_a_site_is_asked_and_answers(folder):
    with opened(folder) as line, living(folder):
        wait(lambda: len(line.present()) == 2, "the sites", pause=0.05)
        for key in ("north", "south"):
            line.post(key, HELLO)
        answers = []
        wait(lambda: answers.extend(line.collect(1.0)) or len(answers) == 2, "answers", pause=0)
        assert {key: told["site"] for key, told in answers} == {"north": "north", "south": "south"}
        assert line.state() == {"north": "connected", "south": "connected"}
        wait(lambda: events(folder)[:2] == ["connected", "answered"], "its log", pause=0.05)


def test_who_has_no_registered_key_gets_no_further_than_the_handshake(folder, tmp_path):
    load_key(tmp_path / "keys" / "stranger", "north")  # its name helps nobody
    with opened(folder) as line:
        with pytest.raises(ConnectionError):
            connected(folder, tmp_path / "keys" / "stranger")
        assert line.present() == {}
        why = wait(lambda: line.refused[1], "the refusal", pause=0.05)
        assert why == "from 127.0.0.1: its key is not registered"
        assert "connected since" in line.why("north")
        assert "from 127.0.0.1" in line.why("north")


def test_no_key_and_an_older_tls_are_refused(folder):
    settings, authority = read_settings(folder), (folder / "tls" / "ca.crt").read_text()
    with opened(folder) as line:
        for older in (False, True):
            tls = ssl.create_default_context(cadata=authority)
            if older:
                tls.maximum_version = ssl.TLSVersion.TLSv1_2
            with pytest.raises((ssl.SSLError, ConnectionError)):
                shaken(tls, plain(settings), settings.host)
        assert line.present() == {}


def test_a_registered_key_signs_no_other_key(folder, tmp_path):
    """North's key as an authority for somebody else: only the very certificate counts."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    from agnosticfair.deploy import secrets

    north = load_pem_private_key((folder / "keys" / "north").read_bytes(), None)
    key, name = ec.generate_private_key(ec.SECP256R1()), secrets._name("south")
    usage = x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.CLIENT_AUTH])
    made = secrets._signed(
        name, key.public_key(), secrets._name("north"), north, secrets.FOR_EVER, usage
    )
    (tmp_path / "forged").write_text(secrets._private(key))
    (tmp_path / "forged.pub").write_text(secrets._pem(made))
    with opened(folder) as line:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            connected(folder, tmp_path / "forged")
        assert line.present() == {}


def test_a_site_trusts_the_authority_of_its_file_only(folder):
    with opened(folder) as line:
        with pytest.raises(ssl.SSLError) as refused:
            connected(folder, authority=tls_files("127.0.0.1")["tls/ca.crt"])
        assert "is of another authority" in cause(refused.value)
        wait(lambda: "does not trust our TLS" in line.refused[1], "the refusal", pause=0.05)


def test_an_old_key_is_cut_off_from_its_rotation_on(folder):
    with opened(folder) as line:
        link, head = connected(folder)
        assert head == {"welcome": "north", "run": "7"}
        admin.rotate_key(folder, "north")
        assert gone(link)
        wait(lambda: line.present() == {}, "the site to be let go")
        link, head = connected(folder)  # with the new key
        assert "welcome" in head
        admin.add_site(folder, "west", Path("west.csv"))
        admin.remove_site(folder, "north")
        assert gone(link)


def test_the_second_process_of_a_site_is_refused_while_the_first_lives(folder):
    with opened(folder) as line:
        first, _ = connected(folder)
        _, head = connected(folder)
        assert "another process" in head["refused"]
        assert line.present() == {"north": 1}
        first.close()
        wait(lambda: line.present() == {}, "the first to be gone", pause=0.05)
        assert "welcome" in connected(folder)[1]


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (frame({"id": "1"}, b"x"), "0 and 1 bytes"),  # nobody asked for it
        (LENGTHS.pack(2**31, 0), "2147483648 and 0 bytes"),
        (LENGTHS.pack(60_000, 0) + b"[" * 60_000, "no JSON object"),
        (LENGTHS.pack(2, 0) + b"[]", "no JSON object"),
    ],
    ids=["unasked", "long", "deep", "list"],
)
def test_what_is_no_awaited_frame_is_refused_unread_and_named(folder, sent, said):
    with opened(folder) as line:
        link, _ = connected(folder)
        with suppress(OSError):
            link.sendall(sent)
        assert gone(link)
        wait(lambda: "north" in line.left, "its end", pause=0.05)
        if "bytes" in said:
            assert "is too long" in line.why("north")
        else:
            assert said in line.why("north")
        assert line.collect(0.0) == []


def test_an_answer_counts_once_and_only_where_it_was_asked(folder):
    with opened(folder) as line:
        link, _ = connected(folder)
        link.sendall(frame({"id": "0", "site": "north"}))
        line.post("north", HELLO)
        asked = read(link)
        while "step" not in asked:
            asked = read(link)
        for _ in range(2):
            link.sendall(frame({"id": asked["id"], "site": "north", "about": "{}"}))
        wait(lambda: line._answers.qsize(), "the answer", pause=0.05)
        time.sleep(0.2)
        assert len(line.collect(0.0)) == 1


def test_a_silent_site_is_let_go_and_named(folder, monkeypatch):
    monkeypatch.setattr(door, "SILENT", 1.5)
    with opened(folder) as line:
        link, _ = connected(folder)
        assert gone(link)
        wait(lambda: line.present() == {}, "its end", pause=0.05)
        assert line.why("north").startswith("it has been silent since ")


def test_a_site_that_computes_for_long_is_alive_all_the_while(folder, monkeypatch):
    """What took more than SILENT seconds was lost, and asked for again for ever."""
    for module in (door, node):
        monkeypatch.setattr(module, "SILENT", 1.5)
        monkeypatch.setattr(module, "BEAT", 0.3)

    def slow(joined, request, content):
        time.sleep(5)
        return {"site": joined.site, "about": "{}"}

    monkeypatch.setattr(deployed, "answer", slow)
    with opened(folder) as line, living(folder, "north"):
        before = wait(line.present, "the site", pause=0.05)
        line.post("north", HELLO)
        (answer,) = wait(lambda: line.collect(1.0), "its answer", pause=0)
        assert answer[1]["id"] == "1"
        assert line.present() == before


def test_a_site_is_not_asked_more_than_it_answers(folder, monkeypatch):
    monkeypatch.setattr(deployed, "answer", lambda *_: time.sleep(1) or {})
    with opened(folder) as line, living(folder, "north"):
        wait(line.present, "the site", pause=0.05)
        for number in range(4):
            line.post("north", {**HELLO, "id": str(number)})
        wait(lambda: "north" in line.left, "the end of the connection", pause=0.05)


def test_slow_strangers_take_no_place_of_a_site(folder, monkeypatch):
    """1,013 connections that say nothing closed the door for everybody."""
    monkeypatch.setattr(door, "HANDSHAKES", 16)
    settings = read_settings(folder)
    with opened(folder) as line:
        crowd = [plain(settings) for _ in range(200)]
        half = [link.send(b"\x16\x03\x01") for link in crowd[-50:]]  # the begin of a handshake
        assert len(half) == 50
        wait(lambda: len(line._shaking) <= 16, "the oldest to give way", pause=0.05)
        assert "welcome" in connected(folder)[1]
        wait(lambda: gone_now(crowd[0]), "the first of them to be closed", pause=0.05)


def gone_now(link):
    link.settimeout(0.05)
    with suppress(TimeoutError):
        try:
            return link.recv(1) == b""
        except ConnectionError:
            return True
    return False


def test_what_strangers_send_is_not_kept(folder):
    """Bodies were read before the signature: 4 x 300 MB, 3.5 GB."""
    settings = read_settings(folder)
    with opened(folder) as line:
        for _ in range(20):
            link = plain(settings)
            with suppress(OSError):
                for _ in range(64):
                    link.sendall(b"POST /v1/fleet/" + b"x" * 65536)
        wait(lambda: not line._shaking, "their end", pause=0.05)
        assert (line.present(), line.left) == ({}, {})
        assert len(line._keys) == 2


def test_a_site_without_a_registered_key_is_told(folder, capsys):
    own = folder / "sites" / "north.toml"
    own.write_text(own.read_text().replace('key = "../keys/north"', 'key = "../north"'))
    load_key(folder / "north", "north")
    with opened(folder) as line, living(folder, "north"):
        found = []
        wait(
            lambda: found.append(capsys.readouterr().out) or "is not registered" in "".join(found),
            "the cause",
            seconds=30,
        )
        admin.rotate_key(folder, "north", folder / "north.pub")
        wait(lambda: line.present(), "the site", seconds=30)


def test_nothing_listens_between_runs_nor_on_another_port(folder):
    settings = read_settings(folder)
    with opened(folder):
        pass
    with pytest.raises(ConnectionRefusedError) as refused:
        socket.create_connection((settings.host, settings.port), timeout=5)
    assert "no run goes on there" in cause(refused.value)


def test_a_site_connects_again_and_says_a_cause_once(folder, monkeypatch, capsys):
    monkeypatch.setattr(node, "AGAIN", 0.02)
    with living(folder, "north"):
        time.sleep(0.3)
        with opened(folder) as line:
            wait(lambda: line.present(), "the site", pause=0.05)
        wait(lambda: "run ended" in events(folder), "its end", pause=0.05)
    assert capsys.readouterr().out.count("Site 'north': no run goes on there") <= 2
    assert events(folder)[:3] == ["disconnected", "connected", "run ended"]


class Verify(ssl.SSLCertVerificationError):
    def __init__(self, code):
        super().__init__("x")
        self.verify_code = code


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Verify(9), "this machine's clock is behind"),
        (Verify(10), "'agnosticfair deploy renew'"),
        (Verify(62), "is not for the address"),
        (Verify(19), "is of another authority than"),
        (ConnectionRefusedError(), "no run goes on there"),
        (TimeoutError(), "broke (TimeoutError)"),
        (asyncio.IncompleteReadError(b"", 8), "broke (IncompleteReadError)"),
        (KeyError("row 17"), "KeyError when talking"),
    ],
)
def test_a_site_names_why_it_is_not_let_in(error, said):
    told = cause(error)
    assert said in told
    assert "row 17" not in told


@pytest.mark.parametrize("hours", [-1, 1])
def test_no_clock_matters_within_a_day(folder, hours, monkeypatch):
    """A clock an hour slow was told as 'another authority'; a certificate begins a day early, a key has no begin."""
    from datetime import UTC, datetime, timedelta

    from cryptography import x509

    shift = datetime.now(UTC) + timedelta(hours=hours)
    for name in ("tls/server.crt", "tls/ca.crt", "keys/north.pub"):
        made = x509.load_pem_x509_certificate((folder / name).read_bytes())
        assert made.not_valid_before_utc < shift < made.not_valid_after_utc


def test_an_expired_certificate_is_named_at_both_ends(folder, monkeypatch):
    from agnosticfair.deploy import secrets

    with opened(folder) as line:
        monkeypatch.setattr(secrets, "DAYS", 0)
        admin.renew(folder)
        assert "the TLS certificate has expired" in str(admin.status(folder)["alarms"])
        wait(lambda: "has expired" in line.why("north"), "the door to see it", pause=0.05)
        with pytest.raises(ssl.SSLError) as refused:
            connected(folder)
        assert "has expired" in cause(refused.value)
    with pytest.raises(SettingsError, match="has expired: 'agnosticfair deploy renew'"):
        Door(read_settings(folder)).__enter__()


def test_threads_end_with_the_door(folder):
    before = threading.active_count()
    with opened(folder):
        connected(folder)
    assert threading.active_count() == before


def test_a_port_that_fails_ends_the_run(folder, monkeypatch):
    """A helper that died was invisible: the run waited for sites that nobody let in."""

    def broken(self):
        raise RuntimeError("broken")

    with opened(folder) as line:
        monkeypatch.setattr(Door, "_look", broken)
        wait(lambda: line._failed, "the failure", pause=0.05)
        with pytest.raises(FederationError, match="the port for sites is shut: RuntimeError"):
            line.collect(0.0)


def test_a_key_or_certificate_that_is_being_replaced_shuts_nobody_out(folder):
    with opened(folder) as line:
        (folder / "tls" / "server.crt").write_text("half")
        line._look()
        assert "welcome" in connected(folder)[1]
