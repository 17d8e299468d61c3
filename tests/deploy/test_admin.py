"""What a coordinator does between runs, over a SuperLink of this process that remembers keys and runs."""

import json
import threading
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr", reason="needs agnosticfair[flower]")

from agnosticfair.data.files import Roles
from agnosticfair.errors import FederationError, SettingsError
from agnosticfair.flower import admin, control, runner
from agnosticfair.flower.causes import identity
from agnosticfair.flower.folder import Federation, read_settings, write_folder
from agnosticfair.flower.masking import LIST, load_secret, read_key_list, read_secret
from agnosticfair.flower.node import load_key, read_site
from agnosticfair.flower.secrets import tls_end


class Superlink:
    """Stands in for the control side: nodes with their keys, runs with their status."""

    def __init__(self):
        self.nodes, self.runs, self.stopped, self.up = {}, {}, [], True

    @contextmanager
    def client(self, settings):
        if not self.up:
            raise control.Away(f"the SuperLink at 127.0.0.1:{settings.control} does not answer")
        yield self

    def ListNodes(self, request):
        return SimpleNamespace(nodes_info=[*self.nodes.values()])

    def RegisterNode(self, request):
        node = len(self.nodes) + 1
        about = {"name": request.name, "public_key": request.public_key, "status": "registered"}
        self.nodes[node] = SimpleNamespace(node_id=node, **about)

    def UnregisterNode(self, request):
        self.nodes[request.node_id].status = "unregistered"

    def ListRuns(self, request):
        runs = {
            int(k): SimpleNamespace(
                status=SimpleNamespace(status=v[0], sub_status=v[1], details=v[2])
            )
            for k, v in self.runs.items()
        }
        return SimpleNamespace(run_dict=runs)

    def StopRun(self, request):
        self.stopped.append(request.run_id)
        self.runs[str(request.run_id)] = ("finished", "stopped", "")
        return SimpleNamespace(success=True)

    def StartRun(self, request):
        self.config = json.loads(request.override_config["settings"].string)
        self.runs["7"] = ("running", "", "")
        return SimpleNamespace(HasField=lambda name: True, run_id=7)

    def known(self):
        return {n.name: n.public_key for n in self.nodes.values() if n.status == "registered"}


@pytest.fixture
def link(monkeypatch):
    superlink = Superlink()
    monkeypatch.setattr(control, "control", superlink.client)
    return superlink


@pytest.fixture
def folder(tmp_path):
    sites = {key: Path(f"{key}.csv") for key in ("north", "south", "west")}
    plan = Federation(sites, Roles("y", ("sex",)), {"method": "fl", "on-failure": "drop"})
    write_folder(tmp_path / "bank", plan)
    return tmp_path / "bank"


def held(folder, key):
    return control.public_key(folder / "keys" / f"{key}.pub", key)


def test_a_run_registers_the_keys_of_the_folder_and_no_others(link, folder):
    settings = read_settings(folder)
    control.register(settings)
    control.register(settings)
    assert link.known() == {key: held(folder, key) for key in settings.sites}
    assert len(link.nodes) == 3  # what is known is not registered again


def test_an_old_key_is_registered_no_more(link, folder):
    control.register(read_settings(folder))
    old = held(folder, "north")
    admin.rotate_key(folder, "north")
    assert link.known()["north"] == held(folder, "north") != old
    assert old not in link.known().values()
    assert (folder / "keys" / "north").stat().st_mode & 0o077 == 0


def test_a_site_sends_its_own_new_key(link, folder, tmp_path):
    load_key(tmp_path / "keys" / "own")
    admin.rotate_key(folder, "north", tmp_path / "keys" / "own.pub")
    assert link.known()["north"] == control.public_key(tmp_path / "keys" / "own.pub", "north")
    assert not (folder / "keys" / "north").exists()  # the private half stays with the site
    with pytest.raises(SettingsError, match="no public ECDSA key"):
        admin.rotate_key(folder, "north", folder / "federation.toml")


def test_sites_come_and_go(link, folder, call):
    code, out, _ = call("deploy", "add-site", folder, "east=east.csv")
    assert (code, "sites/east.toml" in out) == (0, True)
    assert read_site(folder / "sites" / "east.toml").config["sensitive-features"] == "sex"
    assert "east" in link.known()
    assert call("deploy", "remove-site", folder, "west")[0] == 0
    assert read_settings(folder).sites == ("east", "north", "south")
    assert "west" not in link.known()
    assert not [*folder.glob("*/west*")]
    code, _, err = call("deploy", "remove-site", folder, "west")
    assert (code, "there is no site 'west'" in err) == (2, True)
    code, _, err = call("deploy", "add-site", folder, "north=a.csv")
    assert (code, "there is a site 'north' already" in err) == (2, True)
    code, _, err = call("deploy", "add-site", folder, "no rth=a.csv")
    assert (code, "site 'no rth': use letters" in err) == (2, True)


def keys_of(folder):
    key_list = read_key_list(folder / "keys" / LIST)
    return key_list.version, key_list.sites


def test_the_list_of_masking_keys_follows_who_comes_and_goes(link, folder, call, tmp_path):
    first, before = keys_of(folder)
    assert (first, sorted(before)) == (1, ["north", "south", "west"])
    call("deploy", "add-site", folder, "east=east.csv")
    version, now = keys_of(folder)
    assert (version, sorted(now)) == (2, ["east", "north", "south", "west"])
    assert read_secret(folder / "keys" / "east.mask", "east").public == now["east"]
    config = read_site(folder / "sites" / "east.toml").config
    assert config["mask-keeper"] == read_site(folder / "sites" / "north.toml").config["mask-keeper"]
    assert config["min-sites"] == 2
    call("deploy", "remove-site", folder, "west")
    assert keys_of(folder) == (3, {k: v for k, v in now.items() if k != "west"})
    call("deploy", "rotate-key", folder, "north")
    version, now = keys_of(folder)
    assert version == 4
    assert read_secret(folder / "keys" / "north.mask", "north").public == now["north"]
    assert now["north"] != before["north"]
    assert call("deploy", "renew", folder)[0] == 0
    assert keys_of(folder) == (4, now)  # a certificate has nothing to do with it
    identity = load_secret(tmp_path / "own" / "south.mask", "south")
    sent = ("--mask-public", tmp_path / "own" / "south.mask.pub")
    connection = held(folder, "south")
    assert call("deploy", "rotate-key", folder, "south", *sent)[0] == 0
    assert keys_of(folder)[1]["south"] == identity.public
    assert held(folder, "south") == connection
    assert not (folder / "keys" / "south.mask").exists()  # the secret is the site's


def test_a_list_that_cannot_follow_is_a_sentence_and_nothing_is_changed(link, folder, call):
    call("deploy", "remove-site", folder, "west")
    code, _, err = call("deploy", "remove-site", folder, "south")
    assert (code, "secure sums hide one site among others" in err) == (2, True)
    (folder / "keys" / "masking.key").unlink()
    for change in (("add-site", folder, "east=east.csv"), ("rotate-key", folder, "north")):
        code, _, err = call("deploy", *change)
        assert (code, "put it there for this change" in err) == (2, True)
    assert read_settings(folder).sites == ("north", "south")
    assert not [*folder.glob("*/east*")]


def test_two_sites_with_one_key_are_named(link, folder):
    text = (folder / "keys" / "north.pub").read_text()
    (folder / "keys" / "south.pub").write_text(text)
    with pytest.raises(SettingsError, match="sites 'north' and 'south' have one and the same key"):
        control.register(read_settings(folder))


def test_a_certificate_is_renewed_by_the_folders_authority(folder, call):
    from cryptography import x509

    at = folder / "tls"
    before = (at / "server.crt").read_text()
    assert call("deploy", "renew", folder)[0] == 0
    after, authority = (
        x509.load_pem_x509_certificate((at / name).read_bytes())
        for name in ("server.crt", "ca.crt")
    )
    after.verify_directly_issued_by(authority)
    assert tls_end((at / "server.crt").read_text()) >= tls_end(before)
    assert (at / "server.crt").read_text() != before
    (at / "ca.key").unlink()
    code, _, err = call("deploy", "renew", folder)
    assert (code, "let your own authority sign" in err) == (2, True)


def test_status_says_that_the_tls_certificate_ends_soon(link, folder, call, monkeypatch):
    assert "deploy renew" not in call("deploy", "status", folder)[1]
    monkeypatch.setattr(admin, "SOON", 1000)
    assert "ends in 89 days: 'agnosticfair deploy renew'" in call("deploy", "status", folder)[1]


def test_status_names_every_site_and_cause(link, folder, call):
    link.up = False
    code, out, _ = call("deploy", "status", folder)
    assert (code, "does not answer" in out) == (3, True)  # a service's health check hears it
    link.up = True
    code, out, _ = call("deploy", "status", folder)
    assert code == 0
    assert "Site north: its key is not registered yet" in out
    control.register(read_settings(folder))
    import time

    now = time.time()
    visits = {
        identity(held(folder, "north")): {"seen": now, "status": 200, "clock": 0.0},
        identity(held(folder, "south")): {"seen": now, "status": 401, "clock": -3600.0},
    }
    (folder / "state" / "fleet.json").write_text(json.dumps(visits))
    link.runs["5"] = ("running", "", "")
    waiting = {"run": "5", "round": {"round": 3}, "waiting": {"west": "it has not connected"}}
    (folder / "results" / "progress.json").write_text(json.dumps(waiting))
    code, out, _ = call("deploy", "status", folder)
    assert "Site north: connected" in out
    assert "Site south: its clock is 3600 s behind the coordinator's" in out
    assert "Site west: it has not connected since the SuperLink was started" in out
    assert "Run: 5, round 3" in out
    code, out, _ = call("deploy", "stop", folder)
    assert link.stopped == [5]
    assert "There is no run to stop" in call("deploy", "stop", folder)[1]


def test_two_runs_at_once_are_refused_by_a_lock_that_dies_with_its_holder(link, folder):
    settings = read_settings(folder)
    with runner.locked(settings):
        (folder / runner.LOCK).write_text("41")
        with pytest.raises(FederationError, match=r"run 41 of .* goes on"), runner.locked(settings):
            pass
    with runner.locked(settings):
        pass


def ended(link, folder, status, said=None, files=()):
    """Let the next run end so, once it was started."""
    inner = link.StartRun

    def start(request):
        found = inner(request)
        link.runs["7"] = status
        for name, content in files:
            (folder / "results" / name).write_text(json.dumps(content))
        return found

    link.StartRun = start


def test_the_cause_of_a_run_that_failed_is_its_own_or_flowers(link, folder):
    ended(link, folder, ("finished", "failed", "OSError: No space left on device"))
    with pytest.raises(FederationError, match=r"ended as finished:failed: OSError: No space left"):
        runner.run_federation(folder)
    ended(link, folder, ("finished", "stopped", ""))
    with pytest.raises(FederationError, match="was stopped: the next one goes on from its checkp"):
        runner.run_federation(folder)
    told = [("error.json", {"run": "7", "error": "column 'age' is missing at client 'south'"})]
    ended(link, folder, ("finished", "failed", "RuntimeError"), files=told)
    with pytest.raises(FederationError, match="column 'age' is missing at client 'south'"):
        runner.run_federation(folder)


def test_a_run_that_takes_too_long_is_stopped_and_says_who_held_it_up(link, folder):
    waiting = {"run": "7", "round": {}, "waiting": {"west": "it has not connected"}}
    ended(link, folder, ("running", "", ""), files=[("progress.json", waiting)])
    said = []
    with pytest.raises(FederationError, match=r"stopped after 0 s \(site 'west': it has not conn"):
        runner.run_federation(folder, runner.Notify(on_trouble=said.append), timeout=0.3)
    assert said == ["waiting for site 'west': it has not connected"]
    assert link.stopped == [7]
    assert link.config["patience"] == 0.3  # no request outlasts the run


def test_a_check_leaves_the_last_results_alone(link, folder):
    ended(link, folder, ("finished", "failed", "x"))
    with pytest.raises(FederationError):
        runner.check_federation(folder)
    assert link.config["check"]
    assert Path(link.config["out"]) == folder / "state" / "check"


def test_a_run_that_was_left_behind_is_stopped_first(link, folder):
    link.runs["3"] = ("running", "", "")
    ended(link, folder, ("finished", "failed", "x"))
    said = []
    with pytest.raises(FederationError):
        runner.run_federation(folder, runner.Notify(on_trouble=said.append))
    assert link.stopped == [3]
    assert said == ["run 3 was left behind: it is stopped first"]


def test_a_superlink_that_is_down_is_told_and_then_given_up_on(link, folder, monkeypatch):
    link.up = False
    monkeypatch.setattr(runner, "LOST", 3.2)
    said = []
    with pytest.raises(control.Away, match="does not answer"):
        runner.run_federation(folder, runner.Notify(on_trouble=said.append))
    assert [sentence.rpartition("; ")[2] for sentence in said] == ["waiting for it, 3 s at most"]


def test_ctrl_c_stops_the_run_where_nobody_can_be_asked(link, folder, call, monkeypatch):
    monkeypatch.setattr(
        runner.control, "status_of", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    code, out, _ = call("deploy", "run", folder)
    assert code == 130
    assert "Run 7 is stopped; the next one goes on from its checkpoint" in out
    assert link.stopped == [7]


@pytest.mark.parametrize(
    ("answer", "said", "stopped"), [(True, "Run 7 is stopped", [7]), (False, "Run 7 goes on", [])]
)
def test_ctrl_c_asks_at_a_terminal(link, folder, call, monkeypatch, answer, said, stopped):
    monkeypatch.setattr(
        runner.control, "status_of", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    request = []
    monkeypatch.setattr("typer.confirm", lambda text, default: request.append(text) or answer)
    code, out, _ = call("deploy", "run", folder)
    assert code == 130
    assert request == ["Stop run 7?"]
    assert said in out
    assert link.stopped == stopped


def test_one_of_three_sites_is_no_success_unless_it_is_asked_for(folder, tmp_path, call):
    assert read_settings(folder).run["min-sites"] == 2
    columns = ("--target", "y", "--sensitive-features", "sex", "--on-failure", "drop")
    sites = ("--sites", "a=a.csv,b=b.csv,c=c.csv", "--min-sites", "1")
    assert call("deploy", "init", tmp_path / "one", *sites, *columns, "--plain")[0] == 0
    code, _, err = call("deploy", "init", tmp_path / "two", *sites, *columns)
    assert (code, "a total of one site is that site's own sums" in err) == (2, True)
    assert read_settings(tmp_path / "one").run["min-sites"] == 1


def test_a_folder_that_moved_still_works(link, folder, tmp_path):
    moved = tmp_path / "elsewhere"
    folder.rename(moved)
    control.register(read_settings(moved))
    assert read_site(moved / "sites" / "north.toml").key == (moved / "sites/../keys/north")
    from agnosticfair.flower.folder import read_config

    assert read_config(moved)["out"] == str(moved / "results")


def test_a_missing_public_key_is_named_with_its_site(link, folder):
    (folder / "keys" / "west.pub").unlink()
    with pytest.raises(SettingsError, match=r"west\.pub' of site 'west'"):
        control.register(read_settings(folder))


def test_a_used_port_is_said_at_once(folder):
    import socket

    from agnosticfair.flower.superlink import check_port, serve

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=f"port {port} at '127.0.0.1' for the sites"):
            check_port("127.0.0.1", port, "the sites")
        text = (folder / "federation.toml").read_text()
        (folder / "federation.toml").write_text(text.replace("port = 8000", f"port = {port}"))
        with pytest.raises(SettingsError, match="stop what uses it, or change the port"):
            serve(folder)


def test_what_answers_in_place_of_the_superlink_is_told(folder):
    """Another program at the port, without TLS; and nothing at all."""
    import socket

    settings = read_settings(folder)
    with pytest.raises(control.Away, match="has not been started here yet"):
        control.known_sites(settings)
    (folder / "state" / "control.token").write_text("t")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        from dataclasses import replace

        there = replace(settings, control=other.getsockname()[1])

        def hang_up():
            connection, _ = other.accept()
            connection.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(control.Away, match="does not answer: start it by"):
            control.known_sites(there)
        thread.join()
