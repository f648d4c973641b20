"""What real operators did, seen through our eyes: at every moment of every recording."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_kftrain.job_state import GONE, JobState, Phase, read_state
from airflow_kftrain.kinds import find_kind
from airflow_kftrain.monitoring.decisions import Decision, Verdict, decide
from airflow_kftrain.monitoring.pods import PodState, read_pod
from airflow_kftrain.monitoring.report import write_report
from airflow_kftrain.specs.timeouts import Timeouts
from tests.recordings import FOLDER, Recording, View, read, recordings

RECORDINGS = recordings()

_LONGEST_REPORT = 16_000
_STEPS = {
    Phase.QUEUED: 0,
    Phase.STARTING: 0,
    Phase.RUNNING: 1,
    Phase.RESTARTING: 1,
    Phase.SUCCEEDED: 2,
    Phase.FAILED: 2,
    Phase.GONE: 2,
}

every_recording = pytest.mark.parametrize(
    "recording", RECORDINGS, ids=[recording.name for recording in RECORDINGS]
)


class Moment:
    """A view, as it is read after all that came before it."""

    def __init__(self, recording: Recording, view: View, before: JobState | None) -> None:
        self.kind = find_kind(recording.api_version, recording.kind)
        self.view = view
        now = GONE if view.job is None else read_state(self.kind, view.job)
        self.state = now.after(before)
        self.pods: list[PodState] = [read_pod(self.kind, pod) for pod in view.pods]
        self.decision: Decision = decide(self.kind, self.state, self.pods, Timeouts(), view.now)

    def report(self) -> str:
        return write_report(
            self.kind, self.state, self.pods, decision=self.decision, events=self.view.events
        )


def moments(recording: Recording) -> Iterator[Moment]:
    """From the job's creation on."""
    state = None
    for view in recording.views():
        moment = Moment(recording, view, state)
        state = moment.state
        yield moment


@every_recording
def test_phases_do_not_step_back(recording: Recording) -> None:
    steps = [moment.state.phase for moment in moments(recording)]
    for earlier, later in zip(steps, steps[1:], strict=False):
        suspended = later is Phase.QUEUED and _STEPS[earlier] < _STEPS[Phase.GONE]
        assert suspended or _STEPS[later] >= _STEPS[earlier], steps


@every_recording
def test_who_comes_late_reads_the_same_verdict(recording: Recording) -> None:
    """A task that starts anew has no earlier state to hold on to."""
    kind = find_kind(recording.api_version, recording.kind)
    jobs = (view.job for view in recording.views() if view.job is not None)
    phases = [read_state(kind, job).phase for job in jobs]
    final = {"Succeeded": Phase.SUCCEEDED, "Failed": Phase.FAILED}.get(recording.verdict)
    ended = phases.index(final) if final else len(phases)
    assert set(phases[ended:]) <= {final}
    assert not set(phases[:ended]) & {Phase.SUCCEEDED, Phase.FAILED}


@every_recording
def test_no_moment_has_a_wrong_verdict(recording: Recording) -> None:
    for moment in moments(recording):
        if moment.state.phase is Phase.SUCCEEDED:
            assert recording.verdict == "Succeeded"
        elif moment.state.phase is Phase.FAILED:
            assert recording.verdict == "Failed"
        elif moment.decision.verdict is not Verdict.WAIT:
            assert recording.verdict != "Succeeded", moment.decision


@every_recording
def test_the_end_has_the_right_verdict(recording: Recording) -> None:
    *_, last = moments(recording)
    wanted = {"Succeeded": {Phase.SUCCEEDED}, "Failed": {Phase.FAILED}}
    alive = set(Phase) - {Phase.SUCCEEDED, Phase.FAILED}
    assert last.state.phase in wanted.get(recording.verdict, alive)


@every_recording
def test_a_report_can_be_written_at_any_moment(recording: Recording) -> None:
    for moment in moments(recording):
        assert 0 < len(moment.report()) < _LONGEST_REPORT


@every_recording
def test_the_report_at_the_end_is_as_written(
    recording: Recording, request: pytest.FixtureRequest
) -> None:
    *_, last = moments(recording)
    report = f"{last.report()}\n"
    file = FOLDER / f"{recording.name}.txt"
    if request.config.getoption("--write-golden"):
        file.write_text(report, encoding="utf-8")
    assert report == file.read_text(encoding="utf-8")


def test_every_report_belongs_to_a_recording() -> None:
    names = {recording.name for recording in RECORDINGS}
    assert {file.stem for file in FOLDER.glob("*.txt")} == names


def test_a_recording_that_was_cut_can_be_read(tmp_path) -> None:
    """As far as it goes: every prefix is a recording."""
    recording = RECORDINGS[0]
    whole = (FOLDER / f"{recording.name}.jsonl").read_text(encoding="utf-8").splitlines()
    file = tmp_path / "cut.jsonl"
    file.write_text("\n".join(whole[:3]), encoding="utf-8")
    assert len([*read(file).views()]) == 2
