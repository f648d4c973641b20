"""Rights for the tests of the tab: nobody may read the XComs of the DAG `secret`."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager


class Guard(SimpleAuthManager):
    def is_authorized_dag(
        self, *, access_entity: Any = None, details: Any = None, **asked: Any
    ) -> bool:
        if access_entity is DagAccessEntity.XCOM and details is not None and details.id == "secret":
            return False
        return super().is_authorized_dag(access_entity=access_entity, details=details, **asked)
