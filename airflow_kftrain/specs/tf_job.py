"""TFJob: workers, optionally with a chief, parameter servers and evaluators."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_kftrain.errors import InvalidSpec
from airflow_kftrain.specs.job import JobSpec, sized
from airflow_kftrain.specs.nouns import answering
from airflow_kftrain.specs.replicas import Replica, check_replica
from airflow_kftrain.specs.values import flag, one_of, whole_number

_ROLES = {"Chief": "chief", "Worker": "worker", "PS": "ps", "Evaluator": "evaluator"}


@answering
@dataclass(frozen=True, kw_only=True)
class TFJob(JobSpec):
    """Use `workers` if there are only identical workers, otherwise one field per role."""

    workers: int | str | None = None
    chief: Replica | None = None
    worker: Replica | None = None
    ps: Replica | None = None
    evaluator: Replica | None = None
    success_policy: str | None = None
    """"AllWorkers": the job succeeds when all workers have. None: the chief or worker 0 decides."""
    dynamic_workers: bool | None = None
    """Each worker knows only the parameter servers and itself, so workers may come and go."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(
            {
                "workers": whole_number,
                **dict.fromkeys(_ROLES.values(), check_replica),
                "success_policy": lambda field, value: one_of(field, value, ["AllWorkers"]),
                "dynamic_workers": flag,
            }
        )
        self._refuse_both("workers", *_ROLES.values())
        if self.workers is None and not self.replicas:
            raise InvalidSpec(
                "workers",
                "is required: the number of pods is unknown",
                advice="Use workers=4, or chief, worker, ps and evaluator.",
            )

    @property
    def replicas(self) -> dict[str, Replica]:
        """Replicas by role."""
        if self.workers is not None:
            return {"Worker": Replica(count=self.workers)}
        given = {role: getattr(self, field) for role, field in _ROLES.items()}
        return {role: sized(replica, 1) for role, replica in given.items() if replica is not None}
