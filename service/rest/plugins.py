"""``/connector-plugins``: what can be run, how it is configured, whether a config is right."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from aiohttp import web

from service.rest import bodies
from service.rest.openapi import FLAG, array_of, reference
from service.rest.ports import Surface
from service.rest.routes import Access, Answer, Query, Route
from service.rest.secrets import ConfigSecrets

_MISSING = "There is no such plugin."


@dataclass(frozen=True, slots=True, eq=False)
class PluginRoutes:
    """Handlers of ``/connector-plugins``."""

    surface: Surface
    secrets: ConfigSecrets

    def routes(self) -> tuple[Route, ...]:
        """Listing, keys and validation of plugins, for the table of routes."""
        return (
            Route(
                method="GET",
                path="/connector-plugins",
                handle=self.listing,
                about="Connectors that can be run here, and with connectorsOnly=false all other plugins.",
                access=Access.READ,
                tag="plugins",
                query=(Query("connectorsOnly", "False lists every plugin.", {**FLAG, "default": True}),),
                answers=(Answer(200, "The plugins.", array_of(reference("Plugin"))),),
            ),
            Route(
                method="GET",
                path="/connector-plugins/{plugin}/config",
                handle=self.config_keys,
                about="Keys of a plugin.",
                access=Access.READ,
                tag="plugins",
                query=(Query("version", "`latest`, or a version."),),
                answers=(Answer(200, "The keys.", array_of(reference("ConfigKey"))),),
                errors={400: "The version is not one.", 404: _MISSING},
            ),
            Route(
                method="PUT",
                path="/connector-plugins/{plugin}/config/validate",
                handle=self.validate,
                about="Validate a config, all of it at once; without connector.class the one of the path.",
                access=Access.ADMIN,
                tag="plugins",
                body=reference("ConfigInput"),
                query=(
                    Query("warnings", "Our own: true adds `warnings`, what is odd but not wrong.", FLAG),
                    Query("deep", "Our own: true asks the registry, the source and Kafka as well.", FLAG),
                ),
                answers=(Answer(200, "Every key, its value and what is wrong with it.", reference("Validation")),),
                errors={400: "The class is not that of the path, or there is none such.", 404: _MISSING},
            ),
        )

    async def listing(self, request: web.Request) -> web.Response:
        """Sinks, sources, and the others where they are asked for."""
        asked = request.query.get("connectorsOnly")
        connectors_only = asked is None or bodies.parse_flag(asked)
        return bodies.json_answer(self.surface.present_plugins.listing(connectors_only=connectors_only))

    async def config_keys(self, request: web.Request) -> web.Response:
        """Answer 200 with Connect's ConfigKeyInfo of each key."""
        plugin, version = request.match_info["plugin"], request.query.get("version")
        return bodies.json_answer(self.surface.present_plugins.config_keys(plugin, version=version))

    async def validate(self, request: web.Request) -> web.Response:
        """Answer 200 with Connect's ConfigInfos, also where there are errors."""
        given = bodies.parse_config(await bodies.read_body(request))
        config = self.secrets.restored(given.get("name") or "", given)
        is_deep = bodies.parse_flag(request.query.get("deep"))
        plugins = self.surface.present_plugins
        validated = await plugins.validate(request.match_info["plugin"], config, is_deep=is_deep)
        if not bodies.parse_flag(request.query.get("warnings")):
            return bodies.json_answer(validated.infos)
        warnings = [{"key": finding.key, "message": finding.message} for finding in validated.warnings]
        return bodies.json_answer({**asdict(validated.infos), "warnings": warnings})
