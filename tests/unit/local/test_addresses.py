from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from kftrain_local.agent.addresses import Peers, Ports, mpi_variables, scope_of
from tests.unit.local.pods import a_pod


class Book:
    """Ports in the order in which they are requested, and the requests."""

    def __init__(self) -> None:
        self.given: dict[tuple[str, int], int] = {}

    def __call__(self, host: str, port: int) -> int:
        return self.given.setdefault((host, port), 20000 + len(self.given))


@pytest.fixture
def book() -> Book:
    return Book()


@pytest.fixture
def peers(book: Book) -> Peers:
    return Peers(a_pod(subdomain="svc"), book)


@pytest.mark.parametrize(
    "host",
    [
        "job-worker-1",
        "job-worker-1.ml",
        "job-worker-1.ml.svc",
        "job-worker-1.ml.svc.cluster.local",
        "job-worker-1.job",
        "job-worker-1.svc.ml.svc.cluster.local",
        "other.svc",
        "other.svc.ml.svc.cluster.local",
        "job-node-0-1.job",
    ],
)
def test_names_of_peers_with_a_port_become_this_machine(
    peers: Peers, book: Book, host: str
) -> None:
    assert peers.rewrite(f"tcp://{host}:2222/x") == "tcp://127.0.0.1:20000/x"
    assert list(book.given) == [(host.partition(".")[0], 2222)]


@pytest.mark.parametrize(
    "text",
    [
        "localhost:2222",
        "job:2222",
        "a-job-worker-1:2222",
        "job-worker-1.example.com:80",
        "example.com:443",
        "job-worker-1",
        "key:3",
        "job-worker-1:999999",
        "other:80",
        "other.svc2:80",
    ],
)
def test_everything_else_stays(peers: Peers, text: str) -> None:
    assert peers.rewrite(text) == text


def test_one_peer_has_one_port_whoever_mentions_it_and_however(peers: Peers, book: Book) -> None:
    text = peers.rewrite("job-master-0:23456 job-master-0.ml.svc:23456 job-master-0:1")
    assert text == "127.0.0.1:20000 127.0.0.1:20000 127.0.0.1:20001"


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("MASTER_ADDR", "MASTER_PORT"),
        ("PET_MASTER_ADDR", "PET_MASTER_PORT"),
        ("COORDINATOR_ADDRESS", "COORDINATOR_PORT"),
        ("DMLC_TRACKER_URI", "DMLC_TRACKER_PORT"),
    ],
)
def test_address_and_port_in_separate_variables(peers: Peers, host: str, port: str) -> None:
    given = {host: "job-master-0", port: "23456", "RANK": "1"}
    made = peers.rewrite_variables(given)
    assert made == {host: "127.0.0.1", port: "20000", "RANK": "1"}


def test_an_address_of_the_author_stays_with_its_port(peers: Peers) -> None:
    given = {"MASTER_ADDR": "10.1.2.3", "MASTER_PORT": "23456"}
    assert peers.rewrite_variables(given) == given


def test_tf_config(peers: Peers) -> None:
    config = {"cluster": {"worker": ["job-worker-0.ml.svc:2222", "job-worker-1.ml.svc:2222"]}}
    made = peers.rewrite_variables({"TF_CONFIG": json.dumps(config)})["TF_CONFIG"]
    assert json.loads(made) == {"cluster": {"worker": ["127.0.0.1:20000", "127.0.0.1:20001"]}}


def test_paddles_first_pod_opens_the_port_that_the_others_ask_for(book: Book) -> None:
    first, second = Peers(a_pod(), book), Peers(a_pod(), book)
    own = first.rewrite_variables({"PADDLE_MASTER": "127.0.0.1:36543"})
    others = second.rewrite_variables({"PADDLE_MASTER": "job-worker-0:36543"})
    assert own == others == {"PADDLE_MASTER": "127.0.0.1:20000"}


def test_workers_that_share_a_port_get_one_each(peers: Peers) -> None:
    given = {"WORKER_ADDRS": "job-worker-0,job-worker-1", "WORKER_PORT": "9991"}
    made = peers.rewrite_variables(given)
    assert made == {"WORKER_ADDRS": "127.0.0.1,127.0.0.1", "WORKER_PORT": "20000"}


def test_pods_of_a_job_share_their_scope_and_a_jobset_is_one_job() -> None:
    pod = a_pod()
    assert scope_of(pod) == "job-uid"
    pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-uid"] = "set-uid"
    assert scope_of(pod) == "set-uid"
    del pod["metadata"]["labels"], pod["metadata"]["ownerReferences"]
    assert scope_of(pod) == "ml"


@pytest.fixture
def ports() -> Iterator[Ports]:
    ports = Ports()
    yield ports
    ports.close()


def test_ports_are_kept_for_a_scope_and_differ_between_scopes(ports: Ports) -> None:
    first = ports.port("a", "host", 1)
    assert ports.port("a", "host", 1) == first
    assert len({first, ports.port("a", "host", 2), ports.port("b", "host", 1)}) == 3


def test_a_port_is_given_out_again_once_it_is_released(ports: Ports) -> None:
    first = ports.port("a", "host", 1)
    ports.release("a")
    assert ports.port("b", "host", 1) == first


def test_a_port_that_somebody_uses_is_left_to_him(ports: Ports) -> None:
    first = ports.port("a", "host", 1)
    ports.release("a")
    with socket.create_server(("127.0.0.1", first)):
        assert ports.port("a", "host", 1) != first


def test_two_agents_never_give_out_the_same_port(ports: Ports) -> None:
    other = Ports()
    ours = {ports.port("a", "host", number) for number in range(150)}
    others = {other.port("a", "host", number) for number in range(150)}
    other.close()
    assert (len(ours), len(others), ours & others) == (150, 150, set())


def test_mpi_launchers_get_the_remote_shell_and_other_pods_nothing() -> None:
    hosts = {"OMPI_MCA_orte_default_hostfile": "/f", "OMPI_MCA_btl": "self"}
    made = mpi_variables(hosts, "/shell", False)
    assert made["OMPI_MCA_plm_rsh_agent"] == "/shell"
    assert made["PRTE_MCA_prte_default_hostfile"] == "/f"
    assert "OMPI_MCA_btl" not in made  # the author's own
    assert mpi_variables({"A": "b"}, "/shell", False) == {}
    assert "OMPI_MCA_btl" in mpi_variables({}, "/shell", True)
