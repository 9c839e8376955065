"""Settings of Spark that verdicts and values rest on, and that no configuration may change.

Apart from the session, so that a worker's config is checked without loading Spark.
"""

from __future__ import annotations

PINNED_SETTINGS = {
    "spark.sql.caseSensitive": "true",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.avro.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.variant.allowDuplicateKeys": "false",
    "spark.sql.execution.arrow.localRelationThreshold": "0",
    "spark.sql.optimizer.enableJsonExpressionOptimization": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.debug.maxToStringFields": "10",
    "spark.sql.variable.substitute": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
}
"""What exactness and speed rest on; set on every session, whoever started the server.

Case-sensitive names, because JSON's are; no ANSI mode, because a rule must give null and not fail the micro-batch; UTC,
because instants are read without a zone of the machine; days before 1582 as they are, not those of the Julian calendar;
no variant of a payload with a key twice; no local relations, which would be evaluated interpreted on the driver; no
pruning of `from_json`, because all of the payload must be read; no `${env:…}` put into the text of a rule before it is
parsed, and names read as they were when the rule was judged.
"""


def refused_settings(options: dict[str, str]) -> dict[str, str]:
    """Those of the options that ask for something else, which they do not get."""
    pinned = PINNED_SETTINGS
    return {name: value for name, value in options.items() if name in pinned and value.lower() != pinned[name].lower()}
