from airflow_kftrain.monitoring.failures import find_cause
from airflow_kftrain.monitoring.pods import ContainerEnd, Disruption, PodState
from airflow_kftrain.watching.memory import Memory
from tests.unit.monitoring.samples import NOON, after


def crash(seconds, code=1, **more):
    end = ContainerEnd("pytorch", "main", code, reason="Error", finished=after(seconds))
    return end._replace(**more)


def pod(*ends, index=0, **more):
    name = f"train-worker-{index}"
    return PodState(name, "worker", index, created=NOON, ends=ends)._replace(**more)


def test_a_pod_without_a_failure_is_not_kept():
    memory = Memory()
    assert memory.keep(pod(crash(1, 0, reason="Completed"))) is None
    assert memory.merged_with([]) == []


def test_the_log_of_a_failure_is_wanted_once():
    memory = Memory()
    failure = memory.keep(pod(crash(1)))
    assert failure is not None
    assert failure.pod == "train-worker-0"
    assert memory.keep(pod(crash(1))) is None


def test_each_pod_of_a_name_and_each_run_of_a_container_has_a_log_of_its_own():
    memory = Memory()
    runs = [pod(crash(1)), pod(crash(30)), pod(crash(90), created=after(60))]
    for number, run in enumerate(runs):
        failure = memory.keep(run)
        assert failure is not None
        memory.keep_log(failure.log, f"run {number}")
    cause = find_cause(memory.merged_with([]))
    assert cause is not None
    assert memory.logs[cause.log] == "run 2"
    assert list(memory.logs.values()) == ["run 0", "run 1", "run 2"]


def test_a_log_that_tells_more_takes_the_place_of_one_that_tells_less():
    memory = Memory()
    failures = [memory.keep(pod(crash(30 * number))) for number in range(1, 6)]
    for failure in failures:
        assert failure is not None
        memory.keep_log(failure.log, f"run {failure.finished:%M:%S}")
    assert list(memory.logs.values()) == ["run 00:30", "run 01:00", "run 02:30"]
    for index in (1, 2):
        assert memory.keep(pod(crash(200), index=index)) is not None
    assert [key.pod[-1] for key in memory.logs] == ["0", "1", "2"]
    assert memory.keep(pod(crash(10, part="sidecar"), index=3)) is None


def test_no_log_is_wanted_of_what_others_ended_or_of_a_pod_as_a_whole():
    memory = Memory()
    assert memory.keep(pod(crash(1, 143))) is None
    evicted = pod(disruption=Disruption("Evicted"), phase="Failed", index=1)
    assert memory.keep(evicted) is None
    assert len(memory.merged_with([])) == 2


def test_all_ends_of_a_container_that_restarts_are_known_in_the_end():
    memory = Memory()
    memory.keep(pod(crash(1, 3)))
    (merged,) = memory.merged_with([pod(crash(30, 4))])
    assert [(end.exit_code, end.past) for end in merged.ends] == [(4, False), (3, True)]


def test_a_pod_that_is_gone_is_remembered_and_one_made_anew_is_another():
    memory = Memory()
    memory.keep(pod(crash(1, 3)))
    anew = pod(created=after(60), phase="Running")
    gone, there = memory.merged_with([anew])
    assert (gone.created, there.created) == (NOON, after(60))
    cause = find_cause([gone, there])
    assert cause is not None
    assert cause.exit_code == 3


def test_what_was_known_of_a_pod_is_not_lost_by_a_later_look():
    memory = Memory()
    memory.keep(pod(crash(1), disruption=Disruption("Evicted"), deleted=after(2)))
    (merged,) = memory.merged_with([pod()])
    assert (merged.disruption, merged.deleted) == (Disruption("Evicted"), after(2))
    assert len(merged.ends) == 1


def test_it_is_bounded():
    memory = Memory()
    wanted = [memory.keep(pod(crash(1), index=index)) for index in range(1000)]
    assert sum(failure is not None for failure in wanted) < 8
    assert len(memory.logs) == 3
    assert len(memory.merged_with([])) == 32
    for seconds in range(100):
        memory.keep(pod(crash(seconds)))
    assert max(len(each.ends) for each in memory.merged_with([])) == 8
