"""``/admin/loggers``: what is logged, of this worker or of all."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from metrics.log_levels import level_name, level_number
from service.herder.errors import NotFoundError
from service.rest import bodies
from service.rest.openapi import TEXT, array_of, map_of, reference
from service.rest.ports import Surface
from service.rest.routes import Access, Answer, Query, Route


@dataclass(frozen=True, slots=True, eq=False)
class LoggerRoutes:
    """Handlers of ``/admin/loggers``."""

    surface: Surface

    def routes(self) -> tuple[Route, ...]:
        """Reads and changes of log levels, for the table of routes."""
        return (
            Route(
                method="GET",
                path="/admin/loggers",
                handle=self.levels,
                about="Levels of all loggers of this worker.",
                access=Access.READ,
                tag="admin",
                is_admin=True,
                answers=(Answer(200, "Levels by the logger's name.", map_of(reference("Logger"))),),
            ),
            Route(
                method="GET",
                path="/admin/loggers/{logger}",
                handle=self.level,
                about="Level of a logger of this worker.",
                access=Access.READ,
                tag="admin",
                is_admin=True,
                answers=(Answer(200, "The level.", reference("Logger")),),
                errors={404: "There is no such logger."},
            ),
            Route(
                method="PUT",
                path="/admin/loggers/{logger}",
                handle=self.set_level,
                about="Set the level of a logger and of all below it.",
                access=Access.ADMIN,
                tag="admin",
                is_admin=True,
                query=(Query("scope", "`worker` (also when not given), or `cluster`."),),
                body=reference("LoggerInput"),
                answers=(
                    Answer(200, "Names of the loggers changed here.", array_of(TEXT)),
                    Answer(204, "Every worker will change it."),
                ),
                errors={400: "There is no level in the request.", 404: "There is no such level."},
            ),
        )

    async def levels(self, _: web.Request) -> web.Response:
        """All levels, sorted by name."""
        levels = sorted(self.surface.loggers.of_all().items())
        return bodies.json_answer({name: bodies.logger_level(level) for name, level in levels})

    async def level(self, request: web.Request) -> web.Response:
        """Answer 200 with the level of one logger, 404 where none has that name."""
        name = request.match_info["logger"]
        level = self.surface.loggers.of(name)
        if level is None:
            raise NotFoundError(f"Logger {name} not found.")
        return bodies.json_answer(bodies.logger_level(level))

    async def set_level(self, request: web.Request) -> web.Response:
        """200 and the names here, or 204 for the cluster; an unknown scope is this worker's, as in Connect."""
        name = request.match_info["logger"]
        asked = bodies.parse_level(await bodies.read_body(request))
        try:
            level = level_name(level_number(asked))
        except ValueError as error:
            raise NotFoundError(f"invalid log level '{asked}'.") from error
        if request.query.get("scope", "worker").lower() == "cluster":
            await self.surface.present_herder.changes.set_cluster_logger(name, level)
            return bodies.empty_answer(204)
        return bodies.json_answer(list(self.surface.loggers.set(name, level)))
