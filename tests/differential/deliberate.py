"""Where headrace answers otherwise on purpose, and why. Everything else is to be answered as Connect does."""

from __future__ import annotations

from dataclasses import dataclass

_JACKSON = "a body that cannot be read is the client's mistake, not the server's; the text is not a Java parser's"
_NULL_BODY = "a missing body is the client's mistake, not a null pointer of the server's"
_MISTAKE = "an offset that the connector refuses is the client's mistake, not the server's"
_UNKNOWN = "a partition that Kafka does not have is the client's mistake, and the text says which"
_BEYOND = "Connect does not say that the connector will not begin at that offset"
_NO_CLASS = "a config that names no class is not repeated: nothing says which of its values are secrets"
_CLASSES = "the connectors there are are named, without what the JVM knows of them"
_NULL_VALUE = "Connect refuses a null for its own keys and keeps one for a connector's; here no config holds any"
_TYPE = "an error has a content type on every path"


@dataclass(frozen=True, slots=True)
class Difference:
    """The status of each, and whether the texts are the same all the same."""

    reason: str
    connect: int
    headrace: int
    is_same_text: bool = False


def _all(difference: Difference, *names: str) -> dict[str, Difference]:
    return dict.fromkeys(names, difference)


DELIBERATE = {
    **_all(
        Difference(_TYPE, 406, 406, is_same_text=True),
        "a list as plain text",
        "the root as a page",
        "pause as plain text",
    ),
    **_all(Difference(_TYPE, 404, 404, is_same_text=True), "a strange route as plain text"),
    **_all(
        Difference(_JACKSON, 500, 400),
        "create with a strange field",
        "create with a strange state",
        "create with a list in the config",
        "create with an object in the config",
        "create with cut JSON",
        "create with a list",
        "create with a text",
        "put a list",
        "put cut JSON",
        "patch a list",
        "patch cut JSON",
        "validate a list",
        "validate a list in the config",
        "validate cut JSON",
        "set a level by a list",
        "set a level by cut JSON",
        "offsets: a list",
        "offsets: cut JSON",
        "offsets: an object for the list",
        "offsets: a strange field",
        "offsets: a strange field in an entry",
        "offsets: a number for an entry",
    ),
    **_all(
        Difference(_NULL_BODY, 500, 400),
        "create without a config",
        "create with a null config",
        "create with null",
        "create with an empty body",
        "put null",
        "put nothing",
        "validate null",
        "offsets: null",
    ),
    **_all(
        Difference(_MISTAKE, 500, 400, is_same_text=True),
        "change to a text",
        "change to a fraction",
        "change to a boolean",
        "change to less than nothing",
        "change to null inside",
        "change to another key",
        "change to a list",
        "change to an object",
        "change to nothing known",
        "change of a partition without a file",
        "change of no partition",
        "change of a null partition",
    ),
    **_all(
        Difference(_NO_CLASS, 400, 400),
        "create without a class",
        "create with an empty config",
        "put an empty config",
        "patch the class away",
    ),
    **_all(
        Difference(_TYPE, 404, 404, is_same_text=True),
        "task configs by the path of old",
        "unknown route",
        "unknown route below a connector",
    ),
    **_all(
        Difference(_TYPE, 405, 405, is_same_text=True),
        "wrong method",
        "wrong method for the root",
    ),
    "sink: topic a number": Difference(_MISTAKE, 500, 400),
    **_all(
        Difference(_UNKNOWN, 500, 400),
        "sink: partition unknown",
        "sink: topic unknown",
        "sink: one forgotten of a topic unknown",
    ),
    "sink: offset beyond the end": Difference(_BEYOND, 200, 200),
    "create with another content type": Difference(_TYPE, 415, 415, is_same_text=True),
    "create with a class that is not there": Difference(_CLASSES, 400, 400),
    "unknown class": Difference(_CLASSES + "; and it is the client's mistake", 500, 400),
    **_all(
        Difference("the class is that of the path when the body names none, as Connect once had it", 500, 200),
        "validate without a class",
        "validate nothing",
    ),
    "create with a null value": Difference(_NULL_VALUE, 201, 400),
    "validate a null": Difference(_NULL_VALUE, 200, 200, is_same_text=True),
}
