from airflow_kftrain.messages import ReplicaPod
from airflow_kftrain.monitoring.pods import PodState
from airflow_kftrain.watching.evidence import find_leader, replica_pods
from tests.unit.monitoring.samples import NOON, after


def pod(name, role="worker", index=0, **more):
    return PodState(name, role, index, container="main", **more)


def test_the_leader_is_the_newest_of_its_replica():
    old = pod("node-0-a", "node", 0, leads=True, created=NOON)
    new = pod("node-0-b", "node", 0, leads=True, created=after(60))
    other = pod("node-1-a", "node", 1, created=after(90))
    assert find_leader([new, old, other]) is new
    assert find_leader([other]) is None


def test_where_all_lead_the_first_does():
    pods = [pod(f"job-{index}", "node", index, leads=True) for index in (2, 0, 1)]
    assert find_leader(pods) is pods[1]
    nameless = [pod(name, "", None, leads=True, created=NOON) for name in ("b", "a")]
    assert find_leader(nameless) is nameless[0]


def test_links_are_wanted_for_the_newest_pod_of_each_replica_leaders_first():
    pods = [
        pod("worker-1", index=1),
        pod("worker-0-a", created=NOON),
        pod("worker-0-b", created=after(1)),
        pod("master-0", "master", leads=True),
    ]
    assert replica_pods(pods) == (
        ReplicaPod("master", 0, "master-0", "main", leads=True),
        ReplicaPod("worker", 0, "worker-0-b", "main"),
        ReplicaPod("worker", 1, "worker-1", "main"),
    )


def test_of_very_many_pods_some_are_told():
    assert len(replica_pods([pod(f"w-{index}", index=index) for index in range(500)])) == 64
