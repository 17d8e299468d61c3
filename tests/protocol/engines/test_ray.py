"""Actors of a Ray cluster of two nodes on this machine: the bits of the in-process engine, and lost actors."""

import os
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from helpers import small_table
from pyarrow import parquet

pytest.importorskip("ray", reason="needs agnosticfair[ray]")

import ray

from agnosticfair.client.partitions import makers, over_files
from agnosticfair.data.files import Roles
from agnosticfair.errors import DataError, FederationError, SettingsError
from agnosticfair.federation import fit
from agnosticfair.methods import method
from agnosticfair.protocol.engines.ray import Actor, RayEngine
from agnosticfair.protocol.engines.relay import Relay
from agnosticfair.protocol.messages import Reply, pack, unpack

ROLES = Roles("y", ("sex",))
FIT = method("agnosticfair", kernels=20, max_rounds=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A site's rows in five Parquet files of unequal size."""
    place, table = tmp_path_factory.mktemp("site"), small_table(600, 3)
    columns = {**table.numeric, "job": table.categorical["job"].values()}
    columns |= {"y": table.target.values(), "sex": table.sensitive_features["sex"].values()}
    rows = pa.table({name: pa.array(values) for name, values in columns.items()})
    cuts = [0, 200, 350, 450, 540, 600]
    for k, (begin, end) in enumerate(pairwise(cuts)):
        parquet.write_table(rows.slice(begin, end - begin), place / f"{k}.parquet")
    parquet.write_table(rows, place.parent / "all.parquet")
    return place


def here(folder):
    from agnosticfair.data.files import read_clients

    return fit(read_clients([folder.parent / "all.parquet"], ROLES), FIT, positive="yes")


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    made.add_node(num_cpus=1)
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_subgroups_on_two_nodes_have_the_bits_of_one_process_even_when_an_actor_is_lost(
    cluster, folder
):
    subgroups = RayEngine(makers(folder, ROLES, 2))
    rounds = []

    def lose(entry):
        rounds.append(entry["round"])
        if entry["round"] == 1:
            ray.kill(subgroups._actors["subgroup-1"])

    fitted = fit(Relay({"site": subgroups}), FIT, positive="yes", on_round=lose)
    nodes = {a["NodeID"] for a in ray.nodes() if a["Alive"]}
    subgroups.close()
    assert fitted.model.digest == here(folder).model.digest
    assert subgroups.rebuilt == ["subgroup-1"]
    assert len(nodes) == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_actor_that_dies_at_every_request_is_a_failure_with_a_sentence(cluster):
    def deadly():
        return lambda step, payload: os._exit(1)

    def careful():
        def declines(step, payload):
            raise FederationError("I would rather not")

        return declines

    engine = RayEngine({"a": deadly, "b": careful}, cpus=0.5, rebuilds=1)
    answers = engine.exchange("statistics", None, engine.clients())
    engine.close()
    assert "was lost 2 times" in answers["a"].reason
    assert (answers["b"].reason, answers["b"].final) == ("I would rather not", True)


def test_the_subgroups_of_a_folder_add_up_to_it(folder):
    dealt = makers(folder, ROLES, 3)
    assert sorted(dealt) == ["subgroup-0", "subgroup-1", "subgroup-2"]
    counts = [make()("statistics", None).n for make in dealt.values()]
    assert sum(counts) == 600
    whole = over_files("site", [folder.parent / "all.parquet"], ROLES)("statistics", None)
    assert whole.n == 600
    with pytest.raises(SettingsError, match="5 Parquet files for 6 subgroups"):
        makers(folder, ROLES, 6)


def test_an_actor_speaks_the_wire_form():
    actor = Actor(lambda: lambda step, payload: Reply(2, {"n": np.array(1.0)}))
    good, content = actor.send("sums", pack(Reply(1, {})))
    assert good
    assert unpack(content).round == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_site_whose_file_names_subgroups_answers_from_its_cluster(cluster, folder):
    from agnosticfair.flower.site import hello, respond
    from agnosticfair.protocol.engines.in_process import InProcess

    config = {"site": "north", "file": str(folder), "target": "y", "sensitive-features": "sex"}
    config |= {"ray-partitions": 2, "ray-address": cluster.address}

    def request(step, payload):
        return unpack(respond(config, step, b"" if payload is None else pack(payload)))

    fitted = fit(InProcess({"north": request}), FIT, positive="yes")
    assert fitted.model.digest == here(folder).model.digest
    assert len(hello(config)) > 100
    config["min-rows"] = 5000
    with pytest.raises(
        DataError, match="column 'job' of site 'north' has values of fewer than 5000"
    ):
        respond(config, "statistics", b"")


def test_a_site_file_that_makes_no_sense_of_ray_is_refused():
    from agnosticfair.flower.site import site_of

    config = {"site": "north", "file": "rows", "target": "y", "sensitive-features": "sex"}
    with pytest.raises(SettingsError, match="ray-partitions is -1"):
        site_of(config | {"ray-partitions": -1})
    with pytest.raises(SettingsError, match="do not go together"):
        site_of(config | {"ray-partitions": 2, "schema": "schema.json"})
