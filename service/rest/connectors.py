"""``/connectors``: what connectors there are, their configs and tasks."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from aiohttp import web

from service.domain.cluster import ConnectorInfo
from service.domain.ids import TaskId
from service.herder.errors import NotFoundError
from service.rest import bodies
from service.rest.openapi import array_of, reference
from service.rest.ports import Surface
from service.rest.routes import Access, Answer, Query, Route
from service.rest.secrets import ConfigSecrets

_INFO = reference("ConnectorInfo")
_INVALID = "The config is invalid, or has another name."
_CONFLICT = "A rebalance is under way, or the config was changed meanwhile; try again."
_MISSING = "There is no such connector."
_LOCATION = {"Location": "Path of the connector."}


@dataclass(frozen=True, slots=True, eq=False)
class ConnectorRoutes:
    """Handlers of connectors and their tasks."""

    surface: Surface
    secrets: ConfigSecrets

    def routes(self) -> tuple[Route, ...]:
        """Reads and changes of connectors and their tasks, for the table of routes."""
        return (*self._reads(), *self._changes())

    def _reads(self) -> tuple[Route, ...]:
        return (
            Route(
                method="GET",
                path="/connectors",
                handle=self.names,
                about="Names of all connectors; with expand their states and configs.",
                access=Access.READ,
                query=(Query("expand", "`status`, `info`, or both by giving it twice.", array_of({"type": "string"})),),
                answers=(Answer(200, "Names, or maps by name.", reference("Connectors")),),
            ),
            Route(
                method="GET",
                path="/connectors/{connector}",
                handle=self.info,
                about="A connector's config and tasks.",
                access=Access.READ,
                answers=(Answer(200, "The connector.", _INFO),),
                errors={404: _MISSING, 409: _CONFLICT},
            ),
            Route(
                method="GET",
                path="/connectors/{connector}/config",
                handle=self.config,
                about="A connector's config, variables of providers as they were written.",
                access=Access.READ,
                answers=(Answer(200, "The config.", reference("Config")),),
                errors={404: _MISSING, 409: _CONFLICT},
            ),
            Route(
                method="GET",
                path="/connectors/{connector}/status",
                handle=self.status,
                about="States of a connector and its tasks.",
                access=Access.READ,
                answers=(Answer(200, "The states.", reference("ConnectorStatus")),),
                errors={404: "Nothing is known of such a connector."},
            ),
            Route(
                method="GET",
                path="/connectors/{connector}/tasks",
                handle=self.tasks,
                about="A connector's tasks with their configs.",
                access=Access.READ,
                answers=(Answer(200, "The tasks.", array_of(reference("TaskInfo"))),),
                errors={404: _MISSING, 409: _CONFLICT},
            ),
            Route(
                method="GET",
                path="/connectors/{connector}/tasks/{task}/status",
                handle=self.task_status,
                about="A task's state.",
                access=Access.READ,
                answers=(Answer(200, "The state.", reference("TaskState")),),
                errors={404: "Nothing is known of such a task."},
            ),
        )

    def _changes(self) -> tuple[Route, ...]:
        return (
            Route(
                method="POST",
                path="/connectors",
                handle=self.create,
                about="Create a connector.",
                access=Access.ADMIN,
                body=reference("CreateConnector"),
                answers=(Answer(201, "It is created; its tasks come later.", _INFO, headers=_LOCATION),),
                errors={400: _INVALID, 409: "It exists, or a rebalance is under way."},
            ),
            Route(
                method="PUT",
                path="/connectors/{connector}/config",
                handle=self.put_config,
                about="Create a connector, or give it another config.",
                access=Access.ADMIN,
                body=reference("ConfigInput"),
                answers=(
                    Answer(200, "It is changed.", _INFO),
                    Answer(201, "It is created.", _INFO, headers=_LOCATION),
                ),
                errors={400: _INVALID, 409: _CONFLICT},
            ),
            Route(
                method="PATCH",
                path="/connectors/{connector}/config",
                handle=self.patch_config,
                about="Change some keys of a connector's config; null removes a key.",
                access=Access.ADMIN,
                body=reference("ConfigInput"),
                answers=(Answer(200, "It is changed.", _INFO),),
                errors={400: _INVALID, 404: _MISSING, 409: _CONFLICT},
            ),
            Route(
                method="DELETE",
                path="/connectors/{connector}",
                handle=self.delete,
                about="Delete a connector, its tasks and its states; source offsets stay.",
                access=Access.ADMIN,
                answers=(Answer(204, "It is deleted."),),
                errors={404: _MISSING, 409: _CONFLICT},
            ),
        )

    async def names(self, request: web.Request) -> web.Response:
        """A list of names, or with ``expand`` a map; what vanishes meanwhile is left out."""
        herder = self.surface.present_herder
        names = herder.reads.names()
        if "expand" not in request.query:
            return bodies.json_answer(list(names))
        expand = frozenset(request.query.getall("expand"))
        expanded = {}
        for name in names:
            try:
                expanded[name] = self._expanded(request, name, expand)
            except NotFoundError:
                continue
        return bodies.json_answer(expanded)

    def _expanded(self, request: web.Request, name: str, expand: frozenset[str]) -> bodies.Json:
        herder = self.surface.present_herder
        found: bodies.Json = {}
        if "status" in expand:
            found["status"] = bodies.connector_status(herder.reads.status(name))
        if "info" in expand:
            info = herder.reads.info(name, is_consistent=False)
            found["info"] = bodies.connector_info(self.secrets.info(request, info))
        return found

    async def info(self, request: web.Request) -> web.Response:
        """Answer 200 with the connector's ConnectorInfo, its secrets as the asker may see them."""
        info = self.surface.present_herder.reads.info(request.match_info["connector"])
        return bodies.json_answer(bodies.connector_info(self.secrets.info(request, info)))

    async def config(self, request: web.Request) -> web.Response:
        """Answer 200 with the flat config, its secrets as the asker may see them."""
        info = self.surface.present_herder.reads.info(request.match_info["connector"])
        return bodies.json_answer(self.secrets.shown(request, info.config))

    async def status(self, request: web.Request) -> web.Response:
        """Answer 200 with Connect's ConnectorStateInfo, as last told by the owners."""
        status = self.surface.present_herder.reads.status(request.match_info["connector"])
        return bodies.json_answer(bodies.connector_status(status))

    async def tasks(self, request: web.Request) -> web.Response:
        """Answer 200 with the TaskInfo of each task, secrets as the asker may see them."""
        configs = self.surface.present_herder.reads.tasks(request.match_info["connector"])
        return bodies.json_answer(bodies.task_infos(self.secrets.tasks(request, configs)))

    async def task_status(self, request: web.Request) -> web.Response:
        """Answer 200 with the state of one task, as last told by its owner."""
        task = TaskId(request.match_info["connector"], int(request.match_info["task"]))
        return bodies.json_answer(bodies.task_state(task.task, self.surface.present_herder.reads.task_status(task)))

    async def create(self, request: web.Request) -> web.Response:
        """201 and where it is."""
        name, given, initial = bodies.parse_create(await bodies.read_body(request))
        config = bodies.complete_config(self.secrets.restored(name, given), name=name)
        info = await self.surface.present_herder.changes.create(name, config, initial)
        return self._created(request, info)

    async def put_config(self, request: web.Request) -> web.Response:
        """201 when it was created, 200 when it was there."""
        name = request.match_info["connector"]
        given = bodies.parse_config(await bodies.read_body(request))
        config = bodies.complete_config(self.secrets.restored(name, given), name=name)
        info, is_created = await self.surface.present_herder.changes.put(name, config)
        if is_created:
            return self._created(request, info)
        return bodies.json_answer(bodies.connector_info(self.secrets.info(request, info)))

    async def patch_config(self, request: web.Request) -> web.Response:
        """200 and the whole connector."""
        name = request.match_info["connector"]
        patch = self.secrets.restored(name, bodies.parse_patch(await bodies.read_body(request), name=name))
        info = await self.surface.present_herder.changes.patch(name, patch)
        return bodies.json_answer(bodies.connector_info(self.secrets.info(request, info)))

    async def delete(self, request: web.Request) -> web.Response:
        """Answer 204 once the connector is deleted from the config log."""
        await self.surface.present_herder.changes.delete(request.match_info["connector"])
        return bodies.empty_answer(204)

    def _created(self, request: web.Request, info: ConnectorInfo) -> web.Response:
        headers = {"Location": f"/connectors/{quote(info.name, safe='')}"}
        shown = bodies.connector_info(self.secrets.info(request, info))
        return bodies.json_answer(shown, status=201, headers=headers)
